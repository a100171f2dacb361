/* The k-subset law: P(z) proportional to exp(theta z) over the z with k ones.
 *
 * Two forms, each with the mathematics in the module of its name: the mixture, for log Z,
 * the marginals and their derivative (khot/_ksubset_mixture.py), and the ratios, for draws
 * and for the marginals of a small k (khot/_ksubset_ratios.py). A row is always computed in
 * the same order, by one thread, and its result does not depend on the batch around it.
 */
#include "kernel.h"
#include "philox.h"

#include <stdlib.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* nothing here passes a vector to another object */

enum { BLOCK = 512, BLOCK_PAD = 16, MOST_NODES = 40 };
static const double TWO_PI = 0x1.921fb54442d18p2;

typedef double Four __attribute__((vector_size(32), may_alias));

/* A node x = 2 pi l / N: omega = 1 - h2 + i sin, rho, and step = rho (omega - 1). */
typedef struct {
    double h2, sin, real, imaginary, step[2], size;
} Node;

/* How many nodes x >= 0, and N. */
static int64_t choose_nodes(double v, int64_t n, double tail, int64_t *count) {
    double size = tail / 3 + sqrt(tail * tail / 9 + 2 * tail * v);
    for (int i = 0; i < 3 && v > 0; i++) {
        const double x = size / v;
        size -= (v * ((1 + x) * log1p(x) - x) - tail) / log1p(x);
    }
    *count = (size < (double)(n + 1) ? (int64_t)ceil(size) : n + 1) | 1;
    const int64_t half = (*count + 1) / 2;
    if (2 * v <= tail) return half < MOST_NODES ? half : MOST_NODES;
    const int64_t last = (int64_t)ceil(asin(sqrt(tail / (2 * v))) * (double)*count * 2 / TWO_PI);
    return last < half ? last : half;
}

/* phi of four nodes: the product of f over the units. */
static void four_products(const double *restrict p, int64_t padded, const Node *node,
                          double out[4][2]) {
    Four real[4], imaginary[4];
    for (int l = 0; l < 4; l++) {
        real[l] = (Four){1, 1, 1, 1};
        imaginary[l] = (Four){0, 0, 0, 0};
    }
    for (int64_t i = 0; i < padded; i += 4) {
        const Four pi = *(const Four *)(p + i);
        for (int l = 0; l < 4; l++) {
            const Four a = 1 - pi * node[l].h2, b = pi * node[l].sin;
            const Four turned = real[l] * a - imaginary[l] * b;
            imaginary[l] = real[l] * b + imaginary[l] * a;
            real[l] = turned;
        }
    }
    for (int l = 0; l < 4; l++) {
        double a = 1, b = 0;
        for (int j = 0; j < 4; j++) {
            const double turned = a * real[l][j] - b * imaginary[l][j];
            b = a * imaginary[l][j] + b * real[l][j];
            a = turned;
        }
        out[l][0] = a;
        out[l][1] = b;
    }
}

/* Fills the nodes of a row and returns their number. */
static int64_t nodes_of_row(const double *p, int64_t padded, int64_t n, double k, double v,
                            double tail, Node node[MOST_NODES]) {
    int64_t count;
    const int64_t used = choose_nodes(v, n, tail, &count);
    double size = 0;
    for (int64_t l = 0; l < (used + 3) / 4 * 4; l++) {
        const double x = TWO_PI * (double)l / (double)count, half = sin(x / 2);
        node[l].h2 = 2 * half * half;
        node[l].sin = sin(x);
    }
    for (int64_t first = 0; first < used; first += 4) {
        double phi[4][2];
        four_products(p, padded, node + first, phi);
        for (int64_t l = first; l < used && l < first + 4; l++) {
            /* k l mod N is exact, and k x would not be */
            const double turn = TWO_PI * (double)((int64_t)k % count * l % count) / (double)count;
            const double weight = l ? 2.0 : 1.0, a = cos(turn), b = -sin(turn);
            node[l].real = weight * (phi[l - first][0] * a - phi[l - first][1] * b);
            node[l].imaginary = weight * (phi[l - first][0] * b + phi[l - first][1] * a);
            size += node[l].real;
        }
    }
    for (int64_t l = 0; l < used; l++) {
        Node *a = node + l;
        a->real /= size;
        a->imaginary /= size;
        a->step[0] = -a->real * a->h2 - a->imaginary * a->sin;
        a->step[1] = a->real * a->sin - a->imaginary * a->h2;
    }
    node[0].size = size / (double)count;
    return used;
}

static const double TAIL_f32 = 22, TAIL_f64 = 44;
/* Beyond it a unit is certain, to the last bit: weights are kept within the range of REAL. */
static const double REACH_f32 = 60, REACH_f64 = 300;
enum { TABLE_BYTES = 1 << 22 };
/* Of a row, by which a table of chances has paid for itself. */
enum { MANY_SAMPLES = 8 };

/* Where the numbers of a draw come from, and a thread's room for them. */
typedef struct {
    const double *u;
    const int64_t *seeds;
    int64_t first, samples, rows;
    int64_t *to_take; /* units, by lane and sample */
    double *made;
    uint32_t *words;
} Numbers;

static size_t numbers_bytes(size_t before, const Numbers *of, int64_t n, int64_t lanes) {
    const size_t made = of->u ? 0 : 8 * (size_t)n + 4 * (size_t)philox_room(2 * n);
    return (before + 8 * (size_t)(lanes * of->samples) + made + 63) / 64 * 64;
}

static void place_numbers(Numbers *of, char *memory, int64_t n, int64_t lanes) {
    of->to_take = (int64_t *)(void *)memory;
    of->made = (double *)(void *)(of->to_take + lanes * of->samples);
    of->words = (uint32_t *)(void *)(of->made + n);
}

/* The n numbers of a row of sample s: those given, or those of its seed (khot/_random.py). */
static const double *numbers_of(const Numbers *of, int64_t s, int64_t row, int64_t n) {
    if (of->u) return of->u + (s * of->rows + row) * n;
    philox_fill(of->words, 2 * n, (uint64_t)of->seeds[row], (uint32_t)(of->first + s));
    for (int64_t i = 0; i < n; i++) {
        const uint64_t high = of->words[2 * i], low = of->words[2 * i + 1];
        const uint64_t bits = (uint64_t)0x3FF << 52 | high << 20 | low >> 12;
        double shifted;
        memcpy(&shifted, &bits, sizeof shifted);
        of->made[i] = shifted - (1.0 - 0x1p-53);
    }
    return of->made;
}

#define REAL float
#define NAME(stem) stem##_f32
#define LANES 8
#include "k_subset_mixture.h"
#include "k_subset_ratios.h"
#undef REAL
#undef NAME
#undef LANES

#define REAL double
#define NAME(stem) stem##_f64
#define LANES 4
#include "k_subset_mixture.h"
#include "k_subset_ratios.h"
#undef REAL
#undef NAME
#undef LANES

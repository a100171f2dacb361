/* Sigmoid top-k, forward and backward: the algorithm of khot/_solve.py, whose
 * docstring holds the mathematics and the proofs, row by row in C.
 *
 * Scores are read as float or double and everything between is double, so both
 * take the same path and a float result is as good as its rounding. Threads share the rows
 * or, if there are fewer, the chunks of a row. A row is always summed in the same order: its
 * result does not depend on the batch around it or on the number of threads.
 */
#include "chunks.h"
#include "exp2_float.h"

#include <float.h>
#include <stddef.h>

static const double LAST_STEP = 1e-5, NEAR = 1024;
static const double LARGEST_SCORE = DBL_MAX / 5; /* the bracket must not overflow */
static const double PI_8 = 0x1.921fb54442d18p-2, LOG_2 = 0x1.62e42fefa39efp-1;
enum { MOST_ITERATIONS = 3300, MOST_ANCHORS = 8 };

typedef struct {
    double n, most, least, mean, var; /* over the units above -inf */
} Summary;

typedef struct {
    double c, step, residual;
    int32_t iterations;
    uint8_t fallback, stuck;
} Root;

static double inverse(double tau) {
    const double i = 1.0 / tau; /* overflows where tau is subnormal */
    return i < DBL_MAX ? i : DBL_MAX;
}

/* Up to the rounding of a converged row. */
static int within(double c, double lo, double hi) {
    return c >= lo - LAST_STEP && c <= hi + LAST_STEP;
}

/* How far the sum of p is from k, relative to the smaller of k and n - k. */
static double residual(double total, double k, double n) {
    const double smaller = k < n - k ? k : n - k;
    return fabs(total - k) / (smaller > DBL_MIN ? smaller : DBL_MIN);
}

static double halley_step(double r, double f1, double f2, double k, double rest, double n) {
    const double f = k + r;
    const double g = log1p(r / k) - log1p(-r / rest);
    const double v = f * (rest - r) / n;
    const double g1 = f1 / v;
    const double g2 = f2 / v - g1 * g1 * (1 - 2 * f / n);
    return -2 * g * g1 / (2 * g1 * g1 - g * g2);
}

static double balance_step(double excess, double low, double high) {
    const double balanced = 2 * sqrt(low) * sqrt(high);
    const double root = excess == 0 ? balanced : sqrt(excess * excess + balanced * balanced);
    return log(excess > 0 ? 2 * high / (root + excess) : (root - excess) / (2 * low));
}

#include "sigmoid_topk_fast.h"

#define REAL float
#define NAME(stem) stem##_f32
#define FAST_FORWARD fast_forward
#define FAST_BACKWARD fast_backward
#include "sigmoid_topk_rows.h"
#undef REAL
#undef NAME
#undef FAST_FORWARD
#undef FAST_BACKWARD

#define REAL double
#define NAME(stem) stem##_f64
#define FAST_FORWARD(...) 0
#define FAST_BACKWARD(g, x, p, ...) ((void)(p), 0)
#include "sigmoid_topk_rows.h"
#undef REAL
#undef NAME

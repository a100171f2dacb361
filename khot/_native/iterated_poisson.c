/* Iterated Poisson sampling: the rounds of khot/sampling/iterated_poisson.py, whose docstring holds
 * the rules, row by row in C and to the same bit.
 *
 * What is computed of a unit is one rounded product, compared with a number that is exact: nothing
 * is left for a compiler to contract.
 */
#include "philox.h"
#include "row_sum.h"

#include <stdlib.h>

/* What one row needs, of n units. */
typedef struct {
    double *rest, *sum; /* pi of what is not drawn yet, -1 of what is; numbers to be summed */
    uint64_t *pairs;    /* of random words */
} Scratch;

/* In one piece, that of `rest`, which is null if there is no memory. */
static Scratch new_scratch(int64_t n) {
    double *rest = malloc((size_t)(16 * n + 4 * philox_room(2 * n)));
    return (Scratch){rest, rest + n, (uint64_t *)(void *)(rest + 2 * n)};
}

/* The first round: every unit by itself. Returns how many were drawn. */
static int64_t begin(const Scratch *s, int64_t n) {
    double *restrict rest = s->rest;
    const uint64_t *restrict pairs = s->pairs;
    int64_t drawn = 0;
#pragma omp simd reduction(+ : drawn)
    for (int64_t i = 0; i < n; i++) {
        const int taken = philox_uniform(pairs[i]) < rest[i];
        drawn += taken;
        rest[i] = taken ? -1.0 : rest[i];
    }
    return drawn;
}

/* Another: those that are left, renormalised to the number that is missing. */
static int64_t repeat(const Scratch *s, int64_t n, double missing) {
    double *restrict rest = s->rest, *restrict sum = s->sum;
    const uint64_t *restrict pairs = s->pairs;
    int64_t left = 0, drawn = 0;
#pragma omp simd reduction(+ : left)
    for (int64_t i = 0; i < n; i++) {
        left += rest[i] > 0;
        sum[i] = rest[i] > 0 ? rest[i] : 0.0;
    }
    const double total = halved_sum(sum, n), kept = (double)left;
    const double less = missing / (total > 0 ? total : 1.0);
    const double more = (kept - missing) / (kept > total ? kept - total : 1.0);
    const int shrinks = total >= missing;
#pragma omp simd reduction(+ : drawn)
    for (int64_t i = 0; i < n; i++) {
        const double u = philox_uniform(pairs[i]);
        const int wins = shrinks ? u < rest[i] * less : (1 - rest[i]) * more < 1 - u;
        const int taken = wins && rest[i] > 0;
        drawn += taken;
        rest[i] = taken ? -1.0 : rest[i];
    }
    return drawn;
}

#define REAL float
#define NAME(stem) stem##_f32
#include "iterated_poisson_rows.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(stem) stem##_f64
#include "iterated_poisson_rows.h"

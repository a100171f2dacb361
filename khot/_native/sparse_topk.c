/* Sparse top-k, forward and backward: the algorithm of khot/_sparse.py, whose docstring
 * holds the mathematics, row by row in C.
 *
 * A row is always summed in the same order, by one thread: its result does not depend on the
 * batch around it or on the number of threads.
 */
#include "kernel.h"

#include <float.h>
#include <stddef.h>

static const double SMALL_STEP = 1e-4;
enum { BLOCK = 128, PATIENCE = 10, MOST_ITERATIONS = 3300 };

typedef struct {
    double n, most, least, mean, var; /* over the units above -inf */
} Summary;

/* With t = (x + c) / tau + d; `above` is the least score with t >= 0. */
typedef struct {
    double h, low, high, slope, above;
} Sums;

typedef struct {
    double c, d;
} Root;

static double inverse(double tau) {
    const double i = 1.0 / tau; /* overflows where tau is subnormal */
    return i < DBL_MAX ? i : DBL_MAX;
}

/* The normal quantile within 5e-4 (Abramowitz and Stegun 26.2.23): it only starts the search. */
static double probit(double q) {
    const double s = sqrt(-2 * log(q < 0.5 ? q : 1 - q));
    const double z = s - (2.515517 + s * (0.802853 + s * 0.010328)) /
                             (1 + s * (1.432788 + s * (0.189269 + s * 0.001308)));
    return q < 0.5 ? -z : z;
}

/* Newton's step in t, on the cube root of the sum while no cube is half way to its cap. */
static double newton_step(const Sums *a, double r, double k, int cube) {
    const double f = k + r;
    return cube && a->h == 0 ? 3 * f * (cbrt(k / f) - 1) / a->slope : -r / a->slope;
}

#define REAL float
#define LARGEST FLT_MAX
#define REAL_EPSILON FLT_EPSILON
#define NAME(stem) stem##_f32
#include "sparse_topk_rows.h"
#undef REAL
#undef NAME
#undef LARGEST
#undef REAL_EPSILON

#define REAL double
#define LARGEST DBL_MAX
#define REAL_EPSILON DBL_EPSILON
#define NAME(stem) stem##_f64
#include "sparse_topk_rows.h"
#undef REAL
#undef NAME

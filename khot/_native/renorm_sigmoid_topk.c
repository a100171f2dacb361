/* Renormalised sigmoids, forward and backward: the map of khot/relaxations/renorm_sigmoid_topk.py,
 * whose docstring holds the mathematics, row by row in C. Nothing but the scores is kept for the
 * backward.
 *
 * Both p and q = 1 - p come of one u = exp((a - |x|) / tau): with e = u exp(-a / tau) the one is
 * 1 / (1 + e), and the other, the smaller, u / (1 + e) times exp(-a / tau). The anchor a is the
 * least |x| where all scores lie on one side of 0, so that the greatest u is 1 though all p, or all
 * q, underflow; otherwise it is 0. p / P and q / Q do not need the factor.
 *
 * Of float scores this is computed in floats, and summed in doubles: what is normalised is what was
 * summed, and so the entries sum to k though each is rounded. A tau that is far from 1 leaves them
 * to the doubles.
 *
 * Threads share the rows or, if there are fewer, the chunks of a row. A row is always summed in the
 * same order: its result does not depend on the batch around it or on the number of threads.
 */
#include "chunks.h"
#include "exp2_float.h"

#include <float.h>
#include <stddef.h>

/* What is known of a row, apart from its scores. */
typedef struct {
    double inv_tau, k, rest;   /* rest: n - k, of the unmasked units */
    double anchor, factor;     /* a, exp(-a / tau) */
    double p_factor, q_factor; /* by which p and q are to be multiplied: 1, or exp(-a / tau) */
    double p_sum, q_sum;       /* of what is to be multiplied by those */
    double mean;               /* <g, w> or <g, v> */
    int shrinks;               /* P >= k */
} Found;

static inline double inverse_of(double tau) {
    const double i = 1.0 / tau; /* overflows where tau is subnormal */
    return i < DBL_MAX ? i : DBL_MAX;
}

/* Whether s = x / tau and what is divided by tau stay numbers as floats. */
static inline int is_ordinary(double tau) { return tau > 1e-30 && tau < 1e30; }

/* exp(-a) for a >= 0; 0 where it would leave the normal range. */
static inline float exp_minus_float(float a) {
    const float v = a < 87.0f ? -a * 0x1.715476p0f : -126.0f;
    return a < 87.0f ? exp2_float(v) : 0.0f;
}

/* For scores and the results, REAL, and what is computed of each, WORK. */
#define REAL float
#define WORK float
#define EXP_MINUS exp_minus_float
#define NAME(stem) stem##_f32
#include "renorm_sigmoid_topk_passes.h"
#undef WORK
#undef EXP_MINUS
#undef NAME

#define WORK double
#define EXP_MINUS exp_minus
#define NAME(stem) stem##_f32_wide
#include "renorm_sigmoid_topk_passes.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(stem) stem##_f64
#include "renorm_sigmoid_topk_passes.h"
#undef REAL
#undef NAME

#define REAL float
#define NAME(stem) stem##_f32
#define WIDE(stem) stem##_f32_wide
#include "renorm_sigmoid_topk_rows.h"
#undef REAL
#undef NAME
#undef WIDE

#define REAL double
#define NAME(stem) stem##_f64
#define WIDE(stem) stem##_f64
#include "renorm_sigmoid_topk_rows.h"

/* Sequential softmax, forward and backward: the map of
 * khot/relaxations/sequential_softmax_topk.py, whose docstring holds the mathematics, row by
 * row in C. alpha, and all that is summed, is double; f, and what is computed of it alone, is of the
 * scores' own type.
 *
 * A round has one top, a greatest alpha, and everything else is told about the greatest of the
 * others, `second`: f_i = exp((alpha_i - second) / tau), F = sum f_i over the others, u =
 * exp((second - top) / tau). Then with S = 1 + F u
 *
 *     p_top = 1 / S,    1 - p_top = F u / S,    p_i = f_i u / S <= 1/2,
 *
 * in which nothing cancels, and log(1 - p_top) is finite also where u underflows.
 *
 * Backward. With a the cotangent of alpha^(j+1), and v_i = g_i for what p adds to the result,
 * lambda, that of alpha^j / tau, is softmax's, and alpha^j receives it over tau. What comes by log(1 - p_i) is
 * -a_i / (1 - p_i), which for the top may be beyond all numbers; but it enters times
 * p_i / (1 - p_top) = f_i / F or times 1 - p_top alone, and so these are what is computed:
 *
 *     h      = sum_{i != top} a_i p_i / (1 - p_i),
 *     lambda_top = p_top (g_top - <p, g> - a_top + h),
 *     lambda_i   = p_i (g_i - <p, g> - a_i / (1 - p_i) + h) + a_top p_top f_i / F.
 *
 * The rounds are made again in the backward. Where k rows of n are too many to keep, only
 * every sqrt(k)-th alpha is, and the rounds between two of them are made once more.
 *
 * A row is always summed in the same order, by one thread: its result does not depend on the
 * batch around it or on the number of threads.
 */
#include "exp2_float.h"
#include "kernel.h"
#include "log_double.h"

#include <float.h>
#include <stdlib.h>

/* As far down as a unit may be put: sums and differences of two are still numbers. */
static const double LOWEST = -DBL_MAX / 8, LOG2_E = 0x1.71547652b82fep0;
/* Up to so many numbers, a row keeps all of its rounds. */
enum { MOST_KEPT = 1 << 22, BLOCK = 256 };
/* Rows of up to so many units do not fill vectors: LANES of them are done side by side. */
enum { FEW_UNITS = 32, LANES = 8 };

typedef struct {
    double f_sum, scale;    /* F, u / S */
    double p_top, log_rest; /* p of the top, and log of 1 - that */
    double second, gap;     /* alpha of it, and (second - top) / tau */
    int64_t top;
} Round;

/* The same of LANES rows, and the index of the top as a number that compares with them. */
typedef struct {
    double f_sum[LANES], scale[LANES], p_top[LANES], log_rest[LANES];
    double second[LANES], gap[LANES], top[LANES];
} LaneRound;

static inline double inverse_of(double tau) {
    const double i = 1.0 / tau; /* overflows where tau is subnormal */
    return i < DBL_MAX ? i : DBL_MAX;
}

/* exp(-a) for a >= 0; 0 where it would leave the normal range. */
static inline float exp_minus_f32(float a) {
    const float v = a < 87.0f ? -a * (float)LOG2_E : -126.0f;
    return a < 87.0f ? exp2_float(v) : 0.0f;
}

static inline double exp_minus_f64(double a) { return exp_minus(a); }

/* log(1 - p) for 0 <= p <= 1/2 is -2 atanh(s), s = p / (2 - p): by so many terms of its series as
 * count, up to s = 1/31, where p is 1/16, and up to s = 1/3. */
#define REAL float
#define NAME(stem) stem##_f32
#define FEW_TERMS 3
#define ALL_TERMS 8
#include "sequential_softmax_topk_rows.h"
#undef REAL
#undef NAME
#undef FEW_TERMS
#undef ALL_TERMS

#define REAL double
#define NAME(stem) stem##_f64
#define FEW_TERMS 7
#define ALL_TERMS 17
#include "sequential_softmax_topk_rows.h"

/* Sequential softmax, forward and backward: the map of
 * khot/relaxations/sequential_softmax_topk.py, whose docstring holds the mathematics, row by
 * row in C and in double.
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
#include "kernel.h"

#include <float.h>
#include <stdlib.h>

/* As far down as a unit may be put: sums and differences of two are still numbers. */
static const double LOWEST = -DBL_MAX / 8;
/* Up to so many numbers, a row keeps all of its rounds: 32 MB. */
enum { MOST_KEPT = 1 << 22 };

typedef struct {
    double f_sum, scale;    /* F, u / S */
    double p_top, log_rest; /* p of the top, and log of 1 - that */
    double second, gap;     /* alpha of it, and (second - top) / tau */
    int64_t top;
} Round;

/* log(1 - p) for 0 <= p <= 1/2: -2 atanh(s), s = p / (2 - p), by the terms of its series that
 * count: 17 up to s = 1/3, 7 up to s = 1/31, where p is 1/16. */
static inline __attribute__((always_inline)) double log_of_rest(double p, const int terms) {
    const double s = p / (2 - p), t = s * s;
    double y = 1.0 / (2 * terms - 1);
    for (int i = terms - 1; i > 0; i--) y = y * t + 1.0 / (2 * i - 1);
    return -2 * s * y;
}

/* alpha += log(1 - p) of all but the top. */
static inline __attribute__((always_inline)) void lower(double *restrict alpha,
                                                        const double *restrict f, int64_t n,
                                                        double scale, const int terms) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) alpha[i] += log_of_rest(f[i] * scale, terms);
}

/* f of the others, 0 of the top, and what is to be known of the round. */
static Round choose(double *restrict alpha, double *restrict f, int64_t n, double inv_tau) {
    double most = -INFINITY, second = -INFINITY, sum = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = alpha[i] > most ? alpha[i] : most;
    int64_t top = 0;
    while (alpha[top] != most) top++;
    alpha[top] = -INFINITY;
#pragma omp simd reduction(max : second)
    for (int64_t i = 0; i < n; i++) second = alpha[i] > second ? alpha[i] : second;
    const double at = second > -INFINITY ? second : 0; /* nobody else is left */
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        f[i] = exp_minus((at - alpha[i]) * inv_tau);
        sum += f[i];
    }
    alpha[top] = most;
    const double gap = (second - most) * inv_tau, u = exp(gap), s = 1 + sum * u;
    return (Round){sum, u / s, 1 / s, log(sum) + gap - log(s), second, gap, top};
}

static void descend(double *restrict alpha, const double *restrict f, int64_t n,
                    const Round *round) {
    const double next = alpha[round->top] + round->log_rest;
    if (round->scale < 1.0 / 16)
        lower(alpha, f, n, round->scale, 7);
    else
        lower(alpha, f, n, round->scale, 17);
    alpha[round->top] = next > LOWEST ? next : LOWEST;
}

/* What is kept of rounds for the backward of one row. */
typedef struct {
    int64_t rounds;    /* of a segment */
    double *alpha, *f; /* of each round of it, (rounds, n); alpha one row unless tau wants it */
    double *starts;    /* alpha at the start of each segment, (segments, n) */
    double *g, *a;     /* the cotangents of the result and of alpha, (n) each */
    Round *said;       /* (rounds) */
} Kept;

static inline double inverse_of(double tau) {
    const double i = 1.0 / tau; /* overflows where tau is subnormal */
    return i < DBL_MAX ? i : DBL_MAX;
}

/* One round back: a becomes the cotangent of alpha^j. Returns <lambda, alpha - second> / tau if
 * alpha is given. */
static double back(const double *restrict f, const double *restrict alpha,
                   const double *restrict g, double *restrict a, int64_t n, double inv_tau,
                   const Round *round) {
    const int64_t top = round->top;
    const int alone = !(round->f_sum > 0); /* then it is the last round, and a is 0 */
    const double scale = round->scale, second = round->second, a_top = a[top];
    double mean = 0, h = 0, moment = 0;
#pragma omp simd reduction(+ : mean, h)
    for (int64_t i = 0; i < n; i++) {
        const double p = f[i] * scale; /* 0 of the top */
        mean += p * g[i];
        h += a[i] * p / (1 - p);
    }
    mean += round->p_top * g[top];
    const double from_top = alone ? 0.0 : a_top * round->p_top / round->f_sum;
    const double at_top = round->p_top * (g[top] - mean - a_top + h);
#pragma omp simd reduction(+ : moment)
    for (int64_t i = 0; i < n; i++) {
        const double p = f[i] * scale;
        const double lambda = p * (g[i] - mean - a[i] / (1 - p) + h) + from_top * f[i];
        a[i] += lambda * inv_tau;
        if (alpha) moment += f[i] > 0 ? lambda * ((alpha[i] - second) * inv_tau) : 0.0;
    }
    a[top] = a_top + at_top * inv_tau;
    return alone || !alpha ? 0.0 : moment - at_top * round->gap;
}

#define REAL float
#define NAME(stem) stem##_f32
#include "sequential_softmax_topk_rows.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(stem) stem##_f64
#include "sequential_softmax_topk_rows.h"

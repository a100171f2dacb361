/* The part of sequential_softmax_topk.c that is of the scores' type, once for each REAL. */

/* What is kept of rounds for the backward of one row. */
typedef struct {
    int64_t rounds; /* of a segment */
    REAL *f;        /* of each round of it, (rounds, n) */
    double *alpha;  /* likewise if tau wants it, else one row */
    double *starts; /* alpha at the start of each segment, (segments, n) */
    double *a;      /* the cotangent of alpha, (n) */
    Round *said;    /* (rounds) */
} NAME(Kept);

static inline __attribute__((always_inline)) REAL NAME(log_of_rest)(REAL p, const int terms) {
    const REAL s = p / (2 - p), t = s * s;
    REAL y = (REAL)1 / (REAL)(2 * terms - 1);
    for (int i = terms - 1; i > 0; i--) y = y * t + (REAL)1 / (REAL)(2 * i - 1);
    return -2 * s * y;
}

/* alpha += log(1 - p) of all but the top. */
static inline __attribute__((always_inline)) void NAME(lower)(double *restrict alpha,
                                                              const REAL *restrict f, int64_t n,
                                                              REAL scale, const int terms) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) alpha[i] += NAME(log_of_rest)(f[i] * scale, terms);
}

/* f of the others, 0 of the top, and what is to be known of the round. */
static Round NAME(choose)(double *restrict alpha, REAL *restrict f, int64_t n, double inv_tau) {
    double most = -INFINITY, second = -INFINITY, sum = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = alpha[i] > most ? alpha[i] : most;
    int64_t top = 0;
    while (alpha[top] != most) top++;
    alpha[top] = -INFINITY;
#pragma omp simd reduction(max : second)
    for (int64_t i = 0; i < n; i++) second = alpha[i] > second ? alpha[i] : second;
    const double at = second > -INFINITY ? second : 0; /* nobody else is left */
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        REAL part = 0;
#pragma omp simd
        for (int64_t i = start; i < end; i++) f[i] = (REAL)((at - alpha[i]) * inv_tau);
#pragma omp simd reduction(+ : part)
        for (int64_t i = start; i < end; i++) {
            f[i] = NAME(exp_minus)(f[i]);
            part += f[i];
        }
        sum += part;
    }
    alpha[top] = most;
    const double gap = (second - most) * inv_tau, u = exp(gap), s = 1 + sum * u;
    return (Round){sum, u / s, 1 / s, log(sum) + gap - log(s), second, gap, top};
}

static void NAME(descend)(double *restrict alpha, const REAL *restrict f, int64_t n,
                          const Round *round) {
    const double next = alpha[round->top] + round->log_rest;
    if (round->scale < 1.0 / 16)
        NAME(lower)(alpha, f, n, (REAL)round->scale, FEW_TERMS);
    else
        NAME(lower)(alpha, f, n, (REAL)round->scale, ALL_TERMS);
    alpha[round->top] = next > LOWEST ? next : LOWEST;
}

/* One round back: a becomes the cotangent of alpha^j. Returns <lambda, alpha - second> / tau if
 * alpha is given. */
static double NAME(back)(const REAL *restrict f, const double *restrict alpha,
                         const REAL *restrict g, double *restrict a, int64_t n, double inv_tau,
                         const Round *round) {
    const int64_t top = round->top;
    const int alone = !(round->f_sum > 0); /* then it is the last round, and a is 0 */
    const double second = round->second, a_top = a[top];
    const REAL scale = (REAL)round->scale;
    double mean = 0, h = 0, moment = 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        REAL of_g = 0, of_a = 0;
#pragma omp simd reduction(+ : of_g, of_a)
        for (int64_t i = start; i < end; i++) {
            const REAL p = f[i] * scale; /* 0 of the top */
            of_g += p * g[i];
            of_a += (REAL)a[i] * p / (1 - p);
        }
        mean += of_g;
        h += of_a;
    }
    mean += round->p_top * (double)g[top];
    const double from_top = alone ? 0.0 : a_top * round->p_top / round->f_sum;
    const double at_top = round->p_top * ((double)g[top] - mean - a_top + h);
    const REAL shared = (REAL)(h - mean), of_top = (REAL)from_top;
#pragma omp simd reduction(+ : moment)
    for (int64_t i = 0; i < n; i++) {
        const REAL p = f[i] * scale;
        const REAL lambda = p * (g[i] + shared - (REAL)a[i] / (1 - p)) + of_top * f[i];
        a[i] += (double)lambda * inv_tau;
        if (alpha) moment += f[i] > 0 ? lambda * ((alpha[i] - second) * inv_tau) : 0.0;
    }
    a[top] = a_top + at_top * inv_tau;
    return alone || !alpha ? 0.0 : moment - at_top * round->gap;
}

/* alpha of the first round: x less its greatest. Returns how many units are above -inf; -1 if the
 * row is to be refused: NaN or +inf, or an infinite difference of scores. */
static int64_t NAME(begin)(const REAL *restrict x, int64_t n, double *restrict alpha) {
    REAL most = (REAL)-INFINITY, least = (REAL)INFINITY;
    int64_t units = 0;
    int good = 1;
    for (int64_t i = 0; i < n; i++) {
        const int unmasked = x[i] > (REAL)-INFINITY;
        good &= x[i] < (REAL)INFINITY; /* false for NaN too */
        units += unmasked;
        most = x[i] > most ? x[i] : most;
        least = unmasked && x[i] < least ? x[i] : least;
    }
    if (!good || (units > 0 && (double)most - (double)least == INFINITY)) return -1;
    for (int64_t i = 0; i < n; i++) {
        const double s = (double)x[i] - (units ? (double)most : 0.0);
        alpha[i] = s < LOWEST && s > -INFINITY ? LOWEST : s;
    }
    return units;
}

#include "sequential_softmax_topk_lanes.h"

/* The forward of rows of few units. */
static int64_t NAME(forward_few)(const REAL *x, int64_t k, const double *tau, int64_t tau_stride,
                                 REAL *y, int64_t rows, int64_t n, int32_t threads) {
    int64_t refused = 0, starved = 0;
#pragma omp parallel num_threads(threads) reduction(+ : refused, starved) \
    if (threads > 1 && rows > LANES && rows * n * k > KHOT_PARALLEL_ELEMENTS)
    {
        NAME(Group) group = NAME(new_group)(n, 1, 1);
        starved += !group.alpha;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row += LANES)
            if (group.alpha)
                refused += NAME(forward_lanes)(&group, x + row * n, k, tau + row * tau_stride,
                                               tau_stride, y ? y + row * n : NULL,
                                               rows - row < LANES ? rows - row : LANES, n);
        free(group.alpha);
    }
    return starved ? -1 : refused;
}

/* y (rows, n), the sum of k softmaxes; null if values are only to be looked at. tau is a column
 * with a stride, 0 for one entry that serves all rows. Returns how many rows were refused, as above
 * or because k is greater than their number of units or tau not finite and above 0; -1 if there is
 * no memory. */
KHOT_EXPORT int64_t NAME(khot_sequential_softmax_topk_forward)(
    const REAL *x, int64_t k, const double *tau, int64_t tau_stride, REAL *y, int64_t rows,
    int64_t n, int32_t threads) {
    if (n <= FEW_UNITS)
        return NAME(forward_few)(x, k, tau, tau_stride, y, rows, n, threads);
    int64_t refused = 0, starved = 0;
#pragma omp parallel num_threads(threads) reduction(+ : refused, starved) \
    if (threads > 1 && rows > 1 && rows * n * k > KHOT_PARALLEL_ELEMENTS)
    {
        double *alpha = malloc((size_t)n * (2 * sizeof *alpha + sizeof(REAL))), *sum = alpha + n;
        REAL *f = (REAL *)(void *)(sum + n);
        starved += !alpha;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            if (!alpha) continue;
            const double taub = tau[row * tau_stride], inv_tau = inverse_of(taub);
            const int64_t units = NAME(begin)(x + row * n, n, alpha);
            if (units < k || !(taub > 0 && taub < INFINITY)) {
                refused++;
                continue;
            }
            if (!y) continue;
            memset(sum, 0, (size_t)n * sizeof *sum);
            for (int64_t j = 0; j < k; j++) {
                const Round round = NAME(choose)(alpha, f, n, inv_tau);
#pragma omp simd
                for (int64_t i = 0; i < n; i++) sum[i] += f[i] * round.scale;
                sum[round.top] += round.p_top;
                if (j + 1 < k) NAME(descend)(alpha, f, n, &round);
            }
            for (int64_t i = 0; i < n; i++) y[row * n + i] = (REAL)sum[i];
        }
        free(alpha);
    }
    return starved ? -1 : refused;
}

static void NAME(pull_back)(const REAL *g, const REAL *x, int64_t k, double inv_tau, int64_t n,
                            const NAME(Kept) *kept, REAL *grad_x, double *grad_tau) {
    const size_t row_bytes = (size_t)n * sizeof(double);
    const int64_t segments = (k + kept->rounds - 1) / kept->rounds;
    double *alpha = kept->alpha, moment = 0;
    NAME(begin)(x, n, alpha);
    for (int64_t segment = 0; segment < segments; segment++) {
        memcpy(kept->starts + segment * n, alpha, row_bytes);
        if (segment + 1 == segments) break; /* its rounds are made below */
        for (int64_t j = 0; j < kept->rounds; j++) {
            const Round round = NAME(choose)(alpha, kept->f, n, inv_tau);
            NAME(descend)(alpha, kept->f, n, &round);
        }
    }
    memset(kept->a, 0, row_bytes);
    const int64_t stride = grad_tau ? n : 0;
    for (int64_t segment = segments - 1; segment >= 0; segment--) {
        const int64_t left = k - segment * kept->rounds;
        const int64_t count = left < kept->rounds ? left : kept->rounds;
        memcpy(kept->alpha, kept->starts + segment * n, row_bytes);
        for (int64_t j = 0; j < count; j++) {
            alpha = kept->alpha + j * stride;
            kept->said[j] = NAME(choose)(alpha, kept->f + j * n, n, inv_tau);
            if (j + 1 == count) break;
            if (grad_tau) memcpy(alpha + n, alpha, row_bytes);
            NAME(descend)(alpha + stride, kept->f + j * n, n, &kept->said[j]);
        }
        for (int64_t j = count - 1; j >= 0; j--)
            moment += NAME(back)(kept->f + j * n, grad_tau ? kept->alpha + j * n : NULL, g,
                                 kept->a, n, inv_tau, &kept->said[j]);
    }
    for (int64_t i = 0; i < n; i++)
        grad_x[i] = x[i] > (REAL)-INFINITY ? (REAL)kept->a[i] : (REAL)0;
    if (grad_tau) *grad_tau = -moment * inv_tau;
}

/* The backward of rows of few units. */
static int64_t NAME(backward_few)(const REAL *g, const REAL *x, int64_t k, const double *tau,
                                  int64_t tau_stride, REAL *grad_x, double *grad_tau, int64_t rows,
                                  int64_t n, int32_t threads) {
    int64_t starved = 0;
#pragma omp parallel num_threads(threads) reduction(+ : starved) \
    if (threads > 1 && rows > LANES && rows * n * k > KHOT_PARALLEL_ELEMENTS)
    {
        NAME(Group) group = NAME(new_group)(n, k, grad_tau ? k : 1);
        starved += !group.alpha;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row += LANES)
            if (group.alpha)
                NAME(pull_back_lanes)(&group, g + row * n, x + row * n, k, tau + row * tau_stride,
                                      tau_stride, grad_x + row * n,
                                      grad_tau ? grad_tau + row : NULL,
                                      rows - row < LANES ? rows - row : LANES, n);
        free(group.alpha);
    }
    return starved ? -1 : 0;
}

/* The cotangents of x and, unless null, of tau, for the cotangent g of y. Returns -1 if there is
 * no memory. */
KHOT_EXPORT int64_t NAME(khot_sequential_softmax_topk_backward)(
    const REAL *g, const REAL *x, int64_t k, const double *tau, int64_t tau_stride, REAL *grad_x,
    double *grad_tau, int64_t rows, int64_t n, int32_t threads) {
    int64_t starved = 0;
    if (k == 0 || rows == 0) {
        memset(grad_x, 0, (size_t)(rows * n) * sizeof *grad_x);
        for (int64_t row = 0; grad_tau && row < rows; row++) grad_tau[row] = 0;
        return 0;
    }
    if (n <= FEW_UNITS)
        return NAME(backward_few)(g, x, k, tau, tau_stride, grad_x, grad_tau, rows, n, threads);
    const int64_t rounds = k * n <= MOST_KEPT ? k : (int64_t)ceil(sqrt((double)k));
    const int64_t segments = (k + rounds - 1) / rounds, alphas = grad_tau ? rounds : 1;
    const size_t doubles = (size_t)n * (size_t)(alphas + segments + 1);
    const size_t reals = (size_t)n * (size_t)rounds;
#pragma omp parallel num_threads(threads) reduction(+ : starved) \
    if (threads > 1 && rows > 1 && rows * n * k > KHOT_PARALLEL_ELEMENTS)
    {
        double *memory = malloc(doubles * sizeof *memory + reals * sizeof(REAL));
        Round *said = malloc((size_t)rounds * sizeof *said);
        const int has = memory && said;
        starved += !has;
        const NAME(Kept) kept = {
            .rounds = rounds,
            .f = (REAL *)(void *)(memory + doubles),
            .alpha = memory,
            .starts = memory + alphas * n,
            .a = memory + (alphas + segments) * n,
            .said = said,
        };
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            if (!has) continue;
            NAME(pull_back)(g + row * n, x + row * n, k, inverse_of(tau[row * tau_stride]), n,
                            &kept, grad_x + row * n, grad_tau ? grad_tau + row : NULL);
        }
        free(memory);
        free(said);
    }
    return starved ? -1 : 0;
}

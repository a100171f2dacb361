/* The part of sparse_topk.c that touches scores, once for each REAL. */

/* Returns 0 if the row holds NaN or +inf. Mean and variance, which only start the search, are
 * taken about the first unmasked unit. */
static int NAME(summarise)(const REAL *restrict x, int64_t n, Summary *out) {
    int64_t first = 0, count = 0;
    while (first < n && !(x[first] > (REAL)-INFINITY)) first++;
    const REAL origin = first < n ? x[first] : 0;
    double sum = 0, square = 0;
    REAL most = -(REAL)INFINITY, least = (REAL)INFINITY;
    int32_t good = 1;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        REAL a = 0, b = 0;
        int32_t units = 0;
#pragma omp simd reduction(+ : a, b, units) reduction(max : most) reduction(min : least) \
    reduction(& : good)
        for (int64_t i = start; i < end; i++) {
            const int32_t unmasked = x[i] > (REAL)-INFINITY;
            const REAL s = unmasked ? x[i] - origin : (REAL)0;
            good &= x[i] < (REAL)INFINITY; /* false for NaN too */
            a += s;
            b += s * s;
            units += unmasked;
            most = x[i] > most ? x[i] : most;
            least = unmasked && x[i] < least ? x[i] : least;
        }
        sum += a;
        square += b;
        count += units;
    }
    const double mean = sum / (double)count, var = square / (double)count - mean * mean;
    *out = (Summary){(double)count, most, least, mean + origin, var > 0 ? var : 0};
    return good;
}

#define WORK REAL
#define WORK_LARGEST LARGEST
#define EPSILON REAL_EPSILON
#define WORK_NAME(stem) NAME(stem)
#include "sparse_topk_solve.h"
#undef WORK
#undef WORK_LARGEST
#undef EPSILON
#undef WORK_NAME

#define WORK double
#define WORK_LARGEST DBL_MAX
#define EPSILON DBL_EPSILON
#define WORK_NAME(stem) NAME(exact_##stem)
#include "sparse_topk_solve.h"
#undef WORK
#undef WORK_LARGEST
#undef EPSILON
#undef WORK_NAME

/* The root to the digits of a double. What a float search leaves is a small step; where it is
 * not, because all that is free hardly moves, the search is done again in double. */
static Root NAME(precise_solve)(const REAL *x, int64_t n, double k, double tau, int cube,
                                const Summary *row) {
    Root root = NAME(solve)(x, n, k, tau, cube, row);
    if (sizeof(REAL) == sizeof(double)) return root;
    const Sums a = NAME(exact_sum_row)(x, n, inverse(tau), root.c, root.d, cube);
    const double r = (a.h - k) + a.low - a.high, step = r == 0 ? 0.0 : -r / a.slope;
    if (!(fabs(step) < SMALL_STEP)) return NAME(exact_solve)(x, n, k, tau, cube, row);
    root.d += step;
    return root;
}

/* y (rows, n), and c and d a row each. k and tau are columns with a stride, 0 for one entry
 * that serves all rows. Returns how many rows were refused: NaN or +inf in x, k outside
 * [0, units above -inf], tau not finite and above 0, an infinite difference of scores. */
KHOT_EXPORT int64_t NAME(khot_sparse_topk_forward)(
    const REAL *x, const double *k, int64_t k_stride, const double *tau, int64_t tau_stride,
    int32_t cube, REAL *y, double *c, double *d, int64_t rows, int64_t n, int32_t threads) {
    int64_t refused = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : refused) \
    if (threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const REAL *restrict xs = x + b * n;
        REAL *restrict ys = y + b * n;
        const double kb = k[b * k_stride], taub = tau[b * tau_stride], inv_tau = inverse(taub);
        Summary row;
        if (!NAME(summarise)(xs, n, &row) || !(kb >= 0 && kb <= row.n) ||
            !(taub > 0 && taub < INFINITY) || row.most - row.least == INFINITY) {
            refused++;
            continue;
        }
        /* at the ends of k, any root that leaves every unit out, or caps every one */
        const Root root = row.n == 0    ? (Root){0, -1}
                          : kb <= 0     ? (Root){-row.most, -1}
                          : kb >= row.n ? (Root){-row.least, 2}
                                        : NAME(precise_solve)(xs, n, kb, taub, cube, &row);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const double t = ((double)xs[i] + root.c) * inv_tau + root.d;
            const double floored = t > 0 ? t : 0.0, u = floored < 1 ? floored : 1.0;
            ys[i] = (REAL)(cube ? u * u * u : u);
        }
        c[b] = root.c;
        d[b] = root.d;
    }
    return refused;
}

/* grad_k where no unit is free: the next units to come, or at k = n the first to go. */
static double NAME(mean_at_the_edge)(const REAL *restrict g, const REAL *restrict x, int64_t n,
                                     double inv_tau, double c, double d) {
    REAL next = -(REAL)INFINITY, least = (REAL)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] > (REAL)-INFINITY)) continue;
        if (((double)x[i] + c) * inv_tau + d <= 0 && x[i] > next) next = x[i];
        if (x[i] < least) least = x[i];
    }
    const REAL at = next > (REAL)-INFINITY ? next : least;
    double count = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        count += x[i] == at;
        sum += x[i] == at ? (double)g[i] : 0.0;
    }
    return count > 0 ? sum / count : 0.0;
}

/* The cotangents of one row. Returns 0, with all of them 0, if no unit is free. */
static inline __attribute__((always_inline)) int NAME(pull_back_of)(
    const REAL *restrict g, const REAL *restrict x, int64_t n, double inv_tau, double c, double d,
    REAL *restrict grad_x, double *grad_k, double *grad_tau, const int cube) {
    const REAL slope = inv_tau < LARGEST ? (REAL)inv_tau : LARGEST, shift = (REAL)c;
    const REAL left = (REAL)(d + (c - shift) * inv_tau), zero = 0, one = 1, three = 3;
    /* what the slope lacks where tau is that small; never inf, for 0 times that is NaN */
    const REAL more = inv_tau / slope < LARGEST ? (REAL)(inv_tau / slope) : LARGEST;
    double total = 0, dot = 0, moment = 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        REAL a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
        for (int64_t i = start; i < end; i++) {
            const REAL t = (x[i] + shift) * slope + left, rate = cube ? three * t * t : one;
            const REAL r = t > zero && t < one ? rate : zero;
            a += r;
            b += r * g[i];
        }
        total += a;
        dot += b;
    }
    *grad_k = total > 0 ? dot / total : 0.0;
    const REAL m = (REAL)*grad_k;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        REAL a = 0;
#pragma omp simd reduction(+ : a)
        for (int64_t i = start; i < end; i++) {
            const REAL t = (x[i] + shift) * slope + left, rate = cube ? three * t * t : one;
            const int is_free = t > zero && t < one;
            const REAL u = is_free ? t : zero, r = is_free ? rate : zero;
            const REAL grad = r * (g[i] - m);
            a += grad * u;
            grad_x[i] = grad * slope * more;
        }
        moment += a;
    }
    *grad_tau = -moment * inv_tau;
    return total > 0;
}

/* The cotangents of x and, unless null, of k and tau, for the cotangent g of y. */
KHOT_EXPORT void NAME(khot_sparse_topk_backward)(
    const REAL *g, const REAL *x, const double *tau, int64_t tau_stride, int32_t cube,
    const double *c, const double *d, REAL *grad_x, double *grad_k, double *grad_tau, int64_t rows,
    int64_t n, int32_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads) \
    if (threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const REAL *gs = g + b * n, *xs = x + b * n;
        REAL *grads = grad_x + b * n;
        const double inv_tau = inverse(tau[b * tau_stride]), cb = c[b], db = d[b];
        double in_k, in_tau;
        const int moves =
            cube ? NAME(pull_back_of)(gs, xs, n, inv_tau, cb, db, grads, &in_k, &in_tau, 1)
                 : NAME(pull_back_of)(gs, xs, n, inv_tau, cb, db, grads, &in_k, &in_tau, 0);
        if (grad_k) grad_k[b] = moves ? in_k : NAME(mean_at_the_edge)(gs, xs, n, inv_tau, cb, db);
        if (grad_tau) grad_tau[b] = in_tau;
    }
}

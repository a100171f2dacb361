/* The part of sigmoid_topk.c that touches scores, once for each REAL. */

/* x / tau, kept finite for a unit that is not masked. */
static inline double NAME(score)(REAL x, double inv_tau) {
    const double least = x > (REAL)-INFINITY ? -LARGEST_SCORE : -INFINITY;
    const double s = (double)x * inv_tau;
    const double capped = s < LARGEST_SCORE ? s : LARGEST_SCORE;
    return capped > least ? capped : least;
}

/* Returns 0 if the row holds NaN or +inf. */
static int NAME(summarise)(const REAL *restrict x, int64_t n, double inv_tau, Summary *out) {
    double count = 0, sum = 0, most = -INFINITY, least = INFINITY;
    int32_t good = 1;
#pragma omp simd reduction(+ : count, sum) reduction(max : most) reduction(min : least) \
    reduction(& : good)
    for (int64_t i = 0; i < n; i++) {
        const double s = NAME(score)(x[i], inv_tau);
        const int free = s > -INFINITY;
        good &= x[i] < (REAL)INFINITY; /* false for NaN too */
        count += free ? 1.0 : 0.0;
        sum += free ? s : 0.0;
        most = s > most ? s : most;
        least = free && s < least ? s : least;
    }
    const double mean = sum / count;
    double square = 0;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < n; i++) {
        const double s = NAME(score)(x[i], inv_tau);
        const double d = s > -INFINITY ? s - mean : 0.0;
        square += d * d;
    }
    *out = (Summary){count, most, least, mean, square / count};
    return good;
}

static Sums NAME(sum_row)(const REAL *restrict x, int64_t n, double inv_tau, double anchor,
                          double c) {
    double h = 0, low = 0, high = 0, f1 = 0, f2 = 0;
#pragma omp simd reduction(+ : h, low, high, f1, f2)
    for (int64_t i = 0; i < n; i++) {
        const double t = (NAME(score)(x[i], inv_tau) + anchor) + c;
        const double e = exp_minus(fabs(t)), r = 1.0 / (1.0 + e);
        const double small = e * r, slope = small * r, curvature = slope * (1.0 - e) * r;
        h += t > 0 ? 1.0 : 0.0;
        low += t > 0 ? 0.0 : small;
        high += t > 0 ? small : 0.0;
        f1 += slope;
        f2 += t > 0 ? -curvature : curvature;
    }
    return (Sums){h, low, high, f1, f2};
}

/* The root for the scores plus anchor. */
static Root NAME(solve)(const REAL *x, int64_t n, double inv_tau, double k, const Summary *row,
                        double anchor) {
    const double rest = row->n - k, logit = log(k) - log(rest);
    double lo = logit - (row->most + anchor), hi = logit - (row->least + anchor);
    double before = INFINITY, width = INFINITY; /* of the bracket, two steps and one step ago */
    double c = logit * sqrt(1 + PI_8 * row->var) - (row->mean + anchor);
    if (!isfinite(c)) c = lo / 2 + hi / 2;
    c = c < lo ? lo : c > hi ? hi : c;

    Root root = {0};
    while (root.iterations < MOST_ITERATIONS) {
        const Sums a = NAME(sum_row)(x, n, inv_tau, anchor, c);
        const double r = (a.h - k) + a.low - a.high;
        root.iterations++;
        if (r == 0) break;
        if (r < 0 && c > lo) lo = c;
        if (r > 0 && c < hi) hi = c;

        const double halley = halley_step(r, a.f1, a.f2, k, rest, row->n);
        const double balance = balance_step(a.h - k, a.low, a.high);
        const int inside = within(c + halley, lo, hi);
        const double step = inside && !(fabs(halley) < fabs(balance)) ? halley : balance;
        const int crawls = hi - lo > 0.5 * before && fabs(step) > 1;
        before = width;
        width = hi - lo;
        const int bisect = crawls || !within(c + step, lo, hi);
        if (!bisect && fabs(step) <= LAST_STEP) {
            root.step = step;
            break;
        }
        const double next = bisect ? lo / 2 + hi / 2 : c + step;
        root.fallback |= bisect;
        root.stuck = next == c || (bisect && (next <= lo || next >= hi));
        if (root.stuck) break;
        c = next;
    }
    root.c = c;
    return root;
}

/* Solves any row into p and returns 1, or returns 0 if it must be refused: NaN or +inf
 * in x, k outside [0, units above -inf]. */
static int NAME(careful_forward)(const REAL *restrict x, REAL *restrict p, int64_t n, double k,
                                 double inv_tau, Root *out) {
    Summary row;
    if (!NAME(summarise)(x, n, inv_tau, &row) || !(k >= 0 && k <= row.n)) return 0;
    Root root = {.c = k <= 0 ? -INFINITY : INFINITY};
    if (k <= 0) {
        memset(p, 0, (size_t)n * sizeof *p);
    } else if (k >= row.n) {
        for (int64_t i = 0; i < n; i++) p[i] = x[i] > (REAL)-INFINITY;
    } else {
        root = NAME(solve)(x, n, inv_tau, k, &row, 0);
        if (root.stuck) {
            const Root inner = NAME(solve)(x, n, inv_tau, k, &row, root.c);
            root.step = inner.c + inner.step;
            root.iterations += inner.iterations;
        }
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            const double t = (NAME(score)(x[i], inv_tau) + root.c) + root.step;
            const double e = exp_minus(fabs(t));
            p[i] = (REAL)((t > 0 ? 1.0 : e) / (1.0 + e));
        }
    }
    *out = root;
    return 1;
}

/* p (rows, n) and, a row each: c, iterations, fallback. k and tau are columns with a
 * stride, 0 for one entry that serves all rows. Returns how many rows were refused. */
KHOT_EXPORT int64_t NAME(khot_sigmoid_topk_forward)(
    const REAL *x, const double *k, int64_t k_stride, const double *tau, int64_t tau_stride,
    REAL *p, double *c, int32_t *iterations, uint8_t *fallback, int64_t rows, int64_t n,
    int32_t threads) {
    int64_t refused = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : refused) \
    if (threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const REAL *xs = x + b * n;
        REAL *ps = p + b * n;
        const double kb = k[b * k_stride], taub = tau[b * tau_stride], inv_tau = inverse(taub);
        Root root = {0};
        if (!(taub > 0 && taub < INFINITY) ||
            !(FAST_FORWARD(xs, ps, n, kb, inv_tau, &root) ||
              NAME(careful_forward)(xs, ps, n, kb, inv_tau, &root))) {
            refused++;
            continue;
        }
        c[b] = root.c + root.step;
        iterations[b] = root.iterations;
        fallback[b] = root.fallback;
    }
    return refused;
}

/* The cotangents of any row. The weights are scaled by exp of the smallest |t|, so that
 * they stay defined where all d underflow. grad_tau may be null. */
static void NAME(careful_backward)(const REAL *restrict g, const REAL *restrict x, int64_t n,
                                   double k, double inv_tau, double c, REAL *restrict grad_x,
                                   double *grad_k, double *grad_tau) {
    /* k = 0 and k = n: softmax of s and of -s instead of softmax of log d */
    const int edge = !isfinite(c);
    const double sign = k > 0 ? -1.0 : 1.0, shift = edge ? 0.0 : c;
    double nearest = INFINITY;
#pragma omp simd reduction(min : nearest)
    for (int64_t i = 0; i < n; i++) {
        const double t = NAME(score)(x[i], inv_tau) + shift;
        const double far = edge ? -sign * t : fabs(t);
        nearest = x[i] > (REAL)-INFINITY && far < nearest ? far : nearest;
    }
    const double scale = edge ? 0.0 : exp_minus(nearest);
    double total = 0, dot = 0;
#pragma omp simd reduction(+ : total, dot)
    for (int64_t i = 0; i < n; i++) {
        const double t = NAME(score)(x[i], inv_tau) + shift;
        const double far = edge ? -sign * t : fabs(t);
        const double u = exp_minus(far - nearest), r = 1.0 / (1.0 + u * scale);
        const double w = x[i] > (REAL)-INFINITY ? u * r * r : 0.0;
        total += w;
        dot += w * (double)g[i];
        grad_x[i] = (REAL)w;
    }
    const double m = total > 0 ? dot / total : 0.0;
    double moment = 0;
#pragma omp simd reduction(+ : moment)
    for (int64_t i = 0; i < n; i++) {
        const double t = NAME(score)(x[i], inv_tau) + shift;
        const double grad = scale * (double)grad_x[i] * ((double)g[i] - m);
        moment += x[i] > (REAL)-INFINITY ? grad * t : 0.0;
        grad_x[i] = (REAL)(grad * inv_tau);
    }
    *grad_k = m;
    if (grad_tau) *grad_tau = -moment * inv_tau;
}

/* The cotangents of x, k and (unless null) tau for the cotangent g of p. */
KHOT_EXPORT void NAME(khot_sigmoid_topk_backward)(
    const REAL *g, const REAL *x, const double *k, int64_t k_stride, const double *tau,
    int64_t tau_stride, const double *c, REAL *grad_x, double *grad_k, double *grad_tau,
    int64_t rows, int64_t n, int32_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads) \
    if (threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const REAL *gs = g + b * n, *xs = x + b * n;
        const double inv_tau = inverse(tau[b * tau_stride]);
        double *of_tau = grad_tau ? grad_tau + b : NULL;
        if (!FAST_BACKWARD(gs, xs, n, inv_tau, c[b], grad_x + b * n, grad_k + b, of_tau))
            NAME(careful_backward)(gs, xs, n, k[b * k_stride], inv_tau, c[b], grad_x + b * n,
                                   grad_k + b, of_tau);
    }
}

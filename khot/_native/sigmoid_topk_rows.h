/* The part of sigmoid_topk.c that touches scores, once for each REAL. */

/* x / tau, kept finite for a unit that is not masked. */
static inline double NAME(score)(REAL x, double inv_tau) {
    const double least = x > (REAL)-INFINITY ? -LARGEST_SCORE : -INFINITY;
    const double s = (double)x * inv_tau;
    const double capped = s < LARGEST_SCORE ? s : LARGEST_SCORE;
    return capped > least ? capped : least;
}

/* A row and where a pass over it stands. */
typedef struct {
    const REAL *x, *g;
    REAL *p, *grad_x;
    double inv_tau, anchor, c, step, mean, nearest, scale, sign;
    int edge;
} NAME(Row);

/* Sum and number of the units above -inf; good unless the row holds NaN or +inf. */
static Part NAME(summary)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x;
    const double inv_tau = row->inv_tau;
    double count = 0, sum = 0, most = -INFINITY, least = INFINITY;
    int32_t good = 1;
#pragma omp simd reduction(+ : count, sum) reduction(max : most) reduction(min : least) \
    reduction(& : good)
    for (int64_t i = start; i < end; i++) {
        const double s = NAME(score)(x[i], inv_tau);
        const int free = s > -INFINITY;
        good &= x[i] < (REAL)INFINITY; /* false for NaN too */
        count += free ? 1.0 : 0.0;
        sum += free ? s : 0.0;
        most = s > most ? s : most;
        least = free && s < least ? s : least;
    }
    return (Part){.sum = {count, sum}, .most = most, .least = least, .good = good};
}

static Part NAME(squares)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x;
    const double inv_tau = row->inv_tau, mean = row->mean;
    double square = 0;
#pragma omp simd reduction(+ : square)
    for (int64_t i = start; i < end; i++) {
        const double s = NAME(score)(x[i], inv_tau);
        const double d = s > -INFINITY ? s - mean : 0.0;
        square += d * d;
    }
    return (Part){.sum = {square}, .most = -INFINITY, .least = INFINITY, .good = 1};
}

/* h, L, H, f' and f'' of khot/_solve.py. */
static Part NAME(sums)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x;
    const double inv_tau = row->inv_tau, anchor = row->anchor, c = row->c;
    double h = 0, low = 0, high = 0, f1 = 0, f2 = 0;
#pragma omp simd reduction(+ : h, low, high, f1, f2)
    for (int64_t i = start; i < end; i++) {
        const double t = (NAME(score)(x[i], inv_tau) + anchor) + c;
        const double e = exp_minus(fabs(t)), r = 1.0 / (1.0 + e);
        const double small = e * r, slope = small * r, curvature = slope * (1.0 - e) * r;
        h += t > 0 ? 1.0 : 0.0;
        low += t > 0 ? 0.0 : small;
        high += t > 0 ? small : 0.0;
        f1 += slope;
        f2 += t > 0 ? -curvature : curvature;
    }
    return (Part){.sum = {h, low, high, f1, f2}, .most = -INFINITY, .least = INFINITY, .good = 1};
}

/* How many units the threshold -c has reached. */
static Part NAME(reached)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x;
    const double inv_tau = row->inv_tau, anchor = row->anchor, c = row->c;
    double count = 0;
#pragma omp simd reduction(+ : count)
    for (int64_t i = start; i < end; i++)
        count += (NAME(score)(x[i], inv_tau) + anchor) + c >= 0 ? 1.0 : 0.0;
    return (Part){.sum = {count}, .most = -INFINITY, .least = INFINITY, .good = 1};
}

/* p, and its sum. */
static Part NAME(write)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x;
    REAL *restrict p = row->p;
    const double inv_tau = row->inv_tau, c = row->c, step = row->step;
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = start; i < end; i++) {
        const double t = (NAME(score)(x[i], inv_tau) + c) + step;
        const double e = exp_minus(fabs(t));
        p[i] = (REAL)((t > 0 ? 1.0 : e) / (1.0 + e));
        total += (double)p[i];
    }
    Part out = NO_PART;
    out.sum[0] = total;
    return out;
}

/* The root for the scores plus anchor. */
static Root NAME(solve)(NAME(Row) *row, int64_t n, double k, const Summary *of, int32_t threads) {
    const double rest = of->n - k, logit = log(k) - log(rest), anchor = row->anchor;
    double lo = logit - (of->most + anchor), hi = logit - (of->least + anchor);
    double before = INFINITY, width = INFINITY; /* of the bracket, two steps and one step ago */
    double c = logit * sqrt(1 + PI_8 * of->var) - (of->mean + anchor);
    if (!isfinite(c)) c = lo / 2 + hi / 2;
    c = c < lo ? lo : c > hi ? hi : c;

    Root root = {0};
    while (root.iterations < MOST_ITERATIONS) {
        row->c = c;
        const Part at = over_row(NAME(sums), row, n, threads);
        const double excess = at.sum[0] - k, low = at.sum[1], high = at.sum[2];
        const double r = excess + low - high;
        root.iterations++;
        if (r == 0) break;
        if (r < 0 && c > lo) lo = c;
        if (r > 0 && c < hi) hi = c;

        const double halley = halley_step(r, at.sum[3], at.sum[4], k, rest, of->n);
        const double balance = balance_step(excess, low, high);
        const int inside = within(c + halley, lo, hi);
        const double step = inside && !(fabs(halley) < fabs(balance)) ? halley : balance;
        const int crawls = hi - lo > 0.5 * before && fabs(step) > 1;
        before = width;
        width = hi - lo;
        const int short_of_c = fabs(step) <= 2 * DBL_EPSILON * fabs(c);
        const int bisect = crawls || !within(c + step, lo, hi) || (short_of_c && anchor != 0);
        if (!bisect && fabs(step) <= LAST_STEP) {
            root.step = step;
            break;
        }
        const double next = bisect ? lo / 2 + hi / 2 : c + step;
        root.fallback |= bisect;
        const int closed = bisect && (next <= lo || next >= hi);
        root.stuck = closed || (short_of_c && !bisect);
        if (closed) {
            row->c = lo;
            c = over_row(NAME(reached), row, n, threads).sum[0] >= k ? lo : hi;
        }
        if (root.stuck) break;
        c = next;
    }
    root.c = c;
    return root;
}

/* Solves any row into p and returns 1, or returns 0 if it must be refused: NaN or +inf
 * in x, k outside [0, units above -inf]. */
static int NAME(careful_forward)(const REAL *x, REAL *p, int64_t n, double k, double inv_tau,
                                 int32_t threads, Root *out) {
    NAME(Row) row = {.x = x, .p = p, .inv_tau = inv_tau};
    const Part found = over_row(NAME(summary), &row, n, threads);
    Summary of = {found.sum[0], found.most, found.least, found.sum[1] / found.sum[0], 0};
    if (!found.good || !(k >= 0 && k <= of.n)) return 0;
    Root root = {.c = k <= 0 ? -INFINITY : INFINITY};
    if (k <= 0) {
        memset(p, 0, (size_t)n * sizeof *p);
    } else if (k >= of.n) {
        for (int64_t i = 0; i < n; i++) p[i] = x[i] > (REAL)-INFINITY;
    } else {
        row.mean = of.mean;
        of.var = over_row(NAME(squares), &row, n, threads).sum[0] / of.n;
        root = NAME(solve)(&row, n, k, &of, threads);
        for (int i = 0; i < MOST_ANCHORS; i++) {
            if (!root.stuck && (row.anchor == 0 || fabs(root.c) <= NEAR)) break;
            row.anchor += root.c;
            const Root inner = NAME(solve)(&row, n, k, &of, threads);
            root.c = inner.c;
            root.step = inner.step;
            root.iterations += inner.iterations;
            root.stuck = inner.stuck;
        }
        if (row.anchor != 0) {
            root.step += root.c;
            root.c = row.anchor;
        }
        row.c = root.c;
        row.step = root.step;
        root.residual = residual(over_row(NAME(write), &row, n, threads).sum[0], k, of.n);
    }
    *out = root;
    return 1;
}

/* p (rows, n) and, a row each and unless null: c, iterations, residual and fallback. k and tau are
 * columns with a stride, 0 for one entry that serves all rows. Returns how many rows were refused. */
KHOT_EXPORT int64_t NAME(khot_sigmoid_topk_forward)(
    const REAL *x, const double *k, int64_t k_stride, const double *tau, int64_t tau_stride,
    REAL *p, double *c, int32_t *iterations, double *residual, uint8_t *fallback, int64_t rows,
    int64_t n, int32_t threads) {
    int64_t refused = 0;
    const int32_t in_row = threads_in_row(rows, n, threads);
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : refused) \
    if (in_row == 1 && threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const REAL *xs = x + b * n;
        REAL *ps = p + b * n;
        const double kb = k[b * k_stride], taub = tau[b * tau_stride], inv_tau = inverse(taub);
        Root root = {0};
        if (!(taub > 0 && taub < INFINITY) ||
            !(FAST_FORWARD(xs, ps, n, kb, inv_tau, in_row, &root) ||
              NAME(careful_forward)(xs, ps, n, kb, inv_tau, in_row, &root))) {
            refused++;
            continue;
        }
        if (c) c[b] = root.c + root.step;
        if (iterations) iterations[b] = root.iterations;
        if (residual) residual[b] = root.residual;
        if (fallback) fallback[b] = root.fallback;
    }
    return refused;
}

/* How far the nearest unit is from the threshold, or at an end of k from the most likely. */
static Part NAME(nearest)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x;
    const double inv_tau = row->inv_tau, c = row->c, sign = row->sign;
    const int edge = row->edge;
    double nearest = INFINITY;
#pragma omp simd reduction(min : nearest)
    for (int64_t i = start; i < end; i++) {
        const double t = NAME(score)(x[i], inv_tau) + c;
        const double far = edge ? -sign * t : fabs(t);
        nearest = x[i] > (REAL)-INFINITY && far < nearest ? far : nearest;
    }
    return (Part){.most = -INFINITY, .least = nearest, .good = 1};
}

/* Sums of the weights w, left in grad_x, and of w g. */
static Part NAME(weights)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x, *restrict g = row->g;
    REAL *restrict grad_x = row->grad_x;
    const double inv_tau = row->inv_tau, c = row->c, sign = row->sign, nearest = row->nearest;
    const double scale = row->scale;
    const int edge = row->edge;
    double total = 0, dot = 0;
#pragma omp simd reduction(+ : total, dot)
    for (int64_t i = start; i < end; i++) {
        const double t = NAME(score)(x[i], inv_tau) + c;
        const double far = edge ? -sign * t : fabs(t);
        const double u = exp_minus(far - nearest), r = 1.0 / (1.0 + u * scale);
        const double w = x[i] > (REAL)-INFINITY ? u * r * r : 0.0;
        total += w;
        dot += w * (double)g[i];
        grad_x[i] = (REAL)w;
    }
    return (Part){.sum = {total, dot}, .most = -INFINITY, .least = INFINITY, .good = 1};
}

/* grad_x from the weights left in it, and the sum of d (g - mean) (s + c). */
static Part NAME(grad)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x, *restrict g = row->g;
    REAL *restrict grad_x = row->grad_x;
    const double inv_tau = row->inv_tau, c = row->c, mean = row->mean, scale = row->scale;
    double moment = 0;
#pragma omp simd reduction(+ : moment)
    for (int64_t i = start; i < end; i++) {
        const double t = NAME(score)(x[i], inv_tau) + c;
        const double grad = scale * (double)grad_x[i] * ((double)g[i] - mean);
        moment += x[i] > (REAL)-INFINITY ? grad * t : 0.0;
        grad_x[i] = (REAL)(grad * inv_tau);
    }
    return (Part){.sum = {moment}, .most = -INFINITY, .least = INFINITY, .good = 1};
}

/* The cotangents of any row. The weights are d scaled by exp of the smallest |t|, so that
 * they stay defined where all d underflow; at k = 0 and k = n, where c is not finite, they
 * are those of the softmax of s and of -s. grad_tau may be null. */
static void NAME(careful_backward)(const REAL *g, const REAL *x, int64_t n, double k,
                                   double inv_tau, double c, int32_t threads, REAL *grad_x,
                                   double *grad_k, double *grad_tau) {
    NAME(Row) row = {.x = x, .g = g, .grad_x = grad_x, .inv_tau = inv_tau};
    row.edge = !isfinite(c);
    row.sign = k > 0 ? -1.0 : 1.0;
    row.c = row.edge ? 0.0 : c;
    row.nearest = over_row(NAME(nearest), &row, n, threads).least;
    row.scale = row.edge ? 0.0 : exp_minus(row.nearest);
    const Part of = over_row(NAME(weights), &row, n, threads);
    row.mean = of.sum[0] > 0 ? of.sum[1] / of.sum[0] : 0.0;
    const Part moment = over_row(NAME(grad), &row, n, threads);
    *grad_k = row.mean;
    if (grad_tau) *grad_tau = -moment.sum[0] * inv_tau;
}

/* The cotangents of x and, unless null, of k and tau, for the cotangent g of p. p itself
 * may be null: it only makes it quicker. */
KHOT_EXPORT void NAME(khot_sigmoid_topk_backward)(
    const REAL *g, const REAL *x, const REAL *p, const double *k, int64_t k_stride,
    const double *tau, int64_t tau_stride, const double *c, REAL *grad_x, double *grad_k,
    double *grad_tau, int64_t rows, int64_t n, int32_t threads) {
    const int32_t in_row = threads_in_row(rows, n, threads);
#pragma omp parallel for schedule(static) num_threads(threads) \
    if (in_row == 1 && threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const REAL *gs = g + b * n, *xs = x + b * n, *ps = p ? p + b * n : NULL;
        REAL *grad = grad_x + b * n;
        const double kb = k[b * k_stride], inv_tau = inverse(tau[b * tau_stride]);
        double in_k, in_tau, *of_tau = grad_tau ? &in_tau : NULL;
        if (!FAST_BACKWARD(gs, xs, ps, n, kb, inv_tau, c[b], in_row, grad, &in_k, of_tau))
            NAME(careful_backward)(gs, xs, n, kb, inv_tau, c[b], in_row, grad, &in_k, of_tau);
        if (grad_k) grad_k[b] = in_k;
        if (grad_tau) grad_tau[b] = in_tau;
    }
}

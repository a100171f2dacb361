/* The passes of renorm_sigmoid_topk.c over a row, once for each pair of REAL and WORK. */

/* A row, and what is known of it. */
typedef struct {
    const REAL *x, *g;
    REAL *out; /* pi, or the cotangent of x */
    Found of;
} NAME(Row);

/* The greatest and least score, the number of those above -inf, and whether all are numbers. */
static Part NAME(extent)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const REAL *restrict x = row->x;
    REAL most = (REAL)-INFINITY, least = (REAL)INFINITY;
    int32_t units = 0, good = 1; /* units of a chunk */
#pragma omp simd reduction(+ : units) reduction(max : most) reduction(min : least) \
    reduction(& : good)
    for (int64_t i = start; i < end; i++) {
        const int32_t unmasked = x[i] > (REAL)-INFINITY;
        const REAL low = unmasked ? x[i] : (REAL)INFINITY;
        good &= x[i] < (REAL)INFINITY; /* false for NaN too */
        units += unmasked;
        most = x[i] > most ? x[i] : most;
        least = low < least ? low : least;
    }
    return (Part){.sum = {(double)units}, .most = most, .least = least, .good = good};
}

/* p and q, without their factors, of a unit; of one that is masked, 0 and 1. */
static inline __attribute__((always_inline)) void NAME(halves)(REAL x, WORK anchor, WORK inv_tau,
                                                               WORK factor, WORK *p, WORK *q) {
    const WORK size = x > 0 ? x : -x, one = 1;
    const WORK u = EXP_MINUS((size - anchor) * inv_tau), r = one / (one + u * factor);
    *p = x > 0 ? r : u * r;
    *q = x > 0 ? u * r : r;
}

/* Sums of p and q, and if there is a g, of p g and q g. */
static inline __attribute__((always_inline)) Part NAME(sums_of)(const NAME(Row) *row, int64_t start,
                                                                int64_t end, const int has_g) {
    const REAL *restrict x = row->x, *restrict g = row->g;
    const WORK anchor = (WORK)row->of.anchor, inv_tau = (WORK)row->of.inv_tau;
    const WORK factor = (WORK)row->of.factor, zero = 0;
    double p_sum = 0, q_sum = 0, p_dot = 0, q_dot = 0;
#pragma omp simd reduction(+ : p_sum, q_sum, p_dot, q_dot)
    for (int64_t i = start; i < end; i++) {
        WORK p, q;
        NAME(halves)(x[i], anchor, inv_tau, factor, &p, &q);
        q = x[i] > (REAL)-INFINITY ? q : zero;
        p_sum += (double)p;
        q_sum += (double)q;
        if (has_g) p_dot += (double)(p * g[i]);
        if (has_g) q_dot += (double)(q * g[i]);
    }
    Part out = NO_PART;
    out.sum[0] = p_sum;
    out.sum[1] = q_sum;
    out.sum[2] = p_dot;
    out.sum[3] = q_dot;
    return out;
}

static Part NAME(sums)(const void *task, int64_t start, int64_t end) {
    return NAME(sums_of)(task, start, end, 0);
}

static Part NAME(sums_with_g)(const void *task, int64_t start, int64_t end) {
    return NAME(sums_of)(task, start, end, 1);
}

/* Returns 0 if the row is to be refused: NaN or +inf, an infinite difference of scores, k outside
 * [0, units above -inf], tau not finite and above 0. Else all is found, of g if there is one. */
static int NAME(look)(NAME(Row) *row, int64_t n, double k, double tau, int32_t threads) {
    const Part range = over_row(NAME(extent), row, n, threads);
    const double units = range.sum[0], most = range.most, least = range.least;
    if (!range.good || most - least == INFINITY) return 0;
    if (!(k >= 0 && k <= units) || !(tau > 0 && tau < INFINITY)) return 0;
    Found *of = &row->of;
    of->k = k;
    of->rest = units - k;
    of->inv_tau = inverse_of(tau);
    of->anchor = units > 0 && most < 0 ? -most : units > 0 && least > 0 ? least : 0.0;
    of->factor = exp_minus(of->anchor * of->inv_tau);
    of->p_factor = most < 0 ? of->factor : 1.0;
    of->q_factor = least > 0 ? of->factor : 1.0;
    const Part sum = over_row(row->g ? NAME(sums_with_g) : NAME(sums), row, n, threads);
    of->p_sum = units > 0 ? sum.sum[0] : 1.0;
    of->q_sum = units > 0 ? sum.sum[1] : 1.0;
    of->shrinks = of->p_sum * of->p_factor >= k && k < units;
    of->mean = of->shrinks ? sum.sum[2] / of->p_sum : sum.sum[3] / of->q_sum;
    return 1;
}

/* pi. */
static Part NAME(write)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const Found *of = &row->of;
    const REAL *restrict x = row->x;
    REAL *restrict pi = row->out;
    const WORK anchor = (WORK)of->anchor, inv_tau = (WORK)of->inv_tau, factor = (WORK)of->factor;
    const WORK p_factor = (WORK)of->p_factor, zero = 0, one = 1, half = (WORK)0.5;
    const WORK p_share = (WORK)(of->k / of->p_sum), q_share = (WORK)(of->rest / of->q_sum);
    const WORK lift = (WORK)((of->k - of->p_sum * of->p_factor) / of->q_sum);
    const int shrinks = of->shrinks;
#pragma omp simd
    for (int64_t i = start; i < end; i++) {
        WORK p, q;
        NAME(halves)(x[i], anchor, inv_tau, factor, &p, &q);
        const WORK grown = one - q_share * q, raised = p * p_factor + lift * q;
        const WORK either = shrinks ? p_share * p : grown > half ? grown : raised;
        const WORK capped = either < one ? either : one; /* rounding may pass it */
        pi[i] = (REAL)(x[i] > (REAL)-INFINITY ? capped : zero);
    }
    return NO_PART;
}

/* The cotangent of x, and the sum of it times x. */
static Part NAME(pull_back)(const void *task, int64_t start, int64_t end) {
    const NAME(Row) *row = task;
    const Found *of = &row->of;
    const REAL *restrict x = row->x, *restrict g = row->g;
    REAL *restrict grad_x = row->out;
    const WORK anchor = (WORK)of->anchor, inv_tau = (WORK)of->inv_tau, factor = (WORK)of->factor;
    /* of w q and v p: either has one half without its factor */
    const WORK share = (WORK)(of->shrinks ? of->k / of->p_sum * of->q_factor
                                          : of->rest / of->q_sum * of->p_factor);
    const WORK mean = (WORK)of->mean, zero = 0;
    double moment = 0;
#pragma omp simd reduction(+ : moment)
    for (int64_t i = start; i < end; i++) {
        WORK p, q;
        NAME(halves)(x[i], anchor, inv_tau, factor, &p, &q);
        const int unmasked = x[i] > (REAL)-INFINITY;
        const WORK grad = unmasked ? share * (p * q) * (g[i] - mean) * inv_tau : zero;
        moment += (double)grad * (unmasked ? (double)x[i] : 0.0);
        grad_x[i] = (REAL)grad;
    }
    Part out = NO_PART;
    out.sum[0] = moment;
    return out;
}

/* Returns 0 if the row was refused. */
static int NAME(forward)(const REAL *x, double k, double tau, REAL *pi, int64_t n,
                         int32_t threads) {
    NAME(Row) row = {.x = x, .out = pi};
    const int good = NAME(look)(&row, n, k, tau, threads);
    if (good) over_row(NAME(write), &row, n, threads);
    return good;
}

/* Of a row that is not to be refused: the cotangents of x, k and tau. */
static void NAME(backward)(const REAL *g, const REAL *x, double k, double tau, REAL *grad_x,
                           double *grad_k, double *grad_tau, int64_t n, int32_t threads) {
    NAME(Row) row = {.x = x, .g = g, .out = grad_x};
    NAME(look)(&row, n, k, tau, threads);
    *grad_k = row.of.mean;
    *grad_tau = -over_row(NAME(pull_back), &row, n, threads).sum[0] * row.of.inv_tau;
}

/* The fast path of sigmoid_topk.c for ordinary float rows; included by it.
 *
 * One exponential a unit: e_i = exp(s_i + c0) at the guess c0 goes into the output
 * itself, and sigmoid(s_i + c) = u / (1 + u) with u = e_i exp(c - c0), so no further
 * step of the root finder needs another. Floats are summed in blocks of BLOCK and
 * doubles across them. Only 1 - p is summed where k is nearer to n: whichever sum is
 * smaller keeps its digits.
 *
 * A row is ordinary if its scores lie within SPREAD of each other, so that no e_i
 * leaves the range of a float, and if Halley's steps stay in the bracket. All others
 * are left to the careful path, which knows what to do with them.
 */

enum { BLOCK = 512, FAST_ITERATIONS = 8 };
static const double SPREAD = 60, LOGIT_RANGE = 20;
static const double FAST_ERROR = 3e-7; /* of the sum of p, relative to k */
/* Halley leaves an error of about a tenth of its cube, below a float's digits. */
static const double FAST_LAST_STEP = 4e-3;

/* A row and where a pass over it stands. (s + c) / log 2 is (x - threshold) * slope + left:
 * about the threshold -c tau the difference is exact, and there p is most sensitive; `left`
 * is what the rounding of the threshold leaves over. */
typedef struct {
    const float *x, *g;
    float *p, *grad_x;
    float origin, threshold, slope, left, scale, mean, inv_tau;
    enum { PLAIN, MASKED, COMPLEMENT } kind;
} FastRow;

static void shift_to(FastRow *row, double c, double inv_tau) {
    row->inv_tau = (float)inv_tau;
    row->slope = (float)(inv_tau / LOG_2);
    row->threshold = (float)(row->origin - c / inv_tau);
    row->left = (float)((((double)row->threshold - row->origin) * inv_tau + c) / LOG_2);
}

/* Sums of x - origin and of its square, and the number of units above -inf. */
static inline __attribute__((always_inline)) Part fast_summary_of(const FastRow *row, int64_t start,
                                                                  int64_t end, const int masked) {
    const float *restrict x = row->x;
    const float origin = row->origin;
    Part out = NO_PART;
    float most = -INFINITY, least = INFINITY;
    for (int64_t from = start; from < end; from += BLOCK) {
        const int64_t to = from + BLOCK < end ? from + BLOCK : end;
        float a = 0, b = 0;
        int32_t units = 0;
#pragma omp simd reduction(+ : a, b, units) reduction(max : most) reduction(min : least)
        for (int64_t i = from; i < to; i++) {
            const int32_t is_free = masked ? x[i] > -INFINITY : 1;
            const float t = is_free ? x[i] - origin : 0.0f, low = is_free ? x[i] : INFINITY;
            a += t;
            b += t * t;
            units += is_free;
            most = x[i] > most ? x[i] : most;
            least = low < least ? low : least;
        }
        out.sum[0] += a;
        out.sum[1] += b;
        out.sum[2] += units;
    }
    out.most = most;
    out.least = least;
    return out;
}

static Part fast_summary(const void *task, int64_t start, int64_t end) {
    return fast_summary_of(task, start, end, 0);
}

static Part fast_masked_summary(const void *task, int64_t start, int64_t end) {
    return fast_summary_of(task, start, end, 1);
}

/* u = exp(s + c0), kept in p. */
static inline __attribute__((always_inline)) void fast_exp(const FastRow *row, int64_t start,
                                                           int64_t end, const int masked) {
    const float *restrict x = row->x;
    float *restrict e = row->p;
    const float threshold = row->threshold, slope = row->slope, left = row->left;
#pragma omp simd
    for (int64_t i = start; i < end; i++) {
        const float u = exp2_float((x[i] - threshold) * slope + left);
        e[i] = masked && !(x[i] > -INFINITY) ? 0.0f : u;
    }
}

/* p (1 - p for the complement) and its first two derivatives in c. */
static inline __attribute__((always_inline)) float fast_term(float u, const int kind, float *d,
                                                             float *curvature) {
    const float r = 1.0f / (1.0f + u), p = u * r;
    *d = p * r;
    *curvature = *d * (r - p);
    return kind == COMPLEMENT ? r : p;
}

/* Four of these, a stride apart, added as a tree. */
static inline __attribute__((always_inline)) float fast_terms(const float *e, int64_t stride,
                                                              float scale, const int kind,
                                                              float *d, float *curvature) {
    float d0, d1, d2, d3, c0, c1, c2, c3;
    const float t0 = fast_term(e[0] * scale, kind, &d0, &c0);
    const float t1 = fast_term(e[stride] * scale, kind, &d1, &c1);
    const float t2 = fast_term(e[2 * stride] * scale, kind, &d2, &c2);
    const float t3 = fast_term(e[3 * stride] * scale, kind, &d3, &c3);
    *d = (d0 + d1) + (d2 + d3);
    *curvature = (c0 + c1) + (c2 + c3);
    return (t0 + t1) + (t2 + t3);
}

/* The sums of these. A block is read at eight places at once, so that few additions follow
 * each other: the rounding of many equal terms all goes one way, and must stay below a
 * float's digits. */
static inline __attribute__((always_inline)) Part fast_sums_of(const FastRow *row, int64_t start,
                                                               int64_t end, const int kind,
                                                               const int first) {
    const float scale = first ? 1.0f : row->scale;
    Part out = NO_PART;
    for (int64_t from = start; from < end; from += BLOCK) {
        const int64_t to = from + BLOCK < end ? from + BLOCK : end, eighth = (to - from) / 8;
        if (first) fast_exp(row, from, to, kind == MASKED);
        const float *restrict e = row->p + from;
        float a = 0, b = 0, c = 0;
#pragma omp simd reduction(+ : a, b, c)
        for (int64_t i = 0; i < eighth; i++) {
            float d0, d1, c0, c1;
            const float t0 = fast_terms(e + i, eighth, scale, kind, &d0, &c0);
            const float t1 = fast_terms(e + i + 4 * eighth, eighth, scale, kind, &d1, &c1);
            a += t0 + t1;
            b += d0 + d1;
            c += c0 + c1;
        }
        for (int64_t i = 8 * eighth; i < to - from; i++) {
            float d, curvature;
            a += fast_term(e[i] * scale, kind, &d, &curvature);
            b += d;
            c += curvature;
        }
        out.sum[0] += a;
        out.sum[1] += b;
        out.sum[2] += c;
    }
    return out;
}

static Part fast_first_sums(const void *task, int64_t start, int64_t end) {
    const FastRow *row = task;
    return row->kind == COMPLEMENT ? fast_sums_of(row, start, end, COMPLEMENT, 1)
           : row->kind == MASKED   ? fast_sums_of(row, start, end, MASKED, 1)
                                   : fast_sums_of(row, start, end, PLAIN, 1);
}

static Part fast_sums(const void *task, int64_t start, int64_t end) {
    const FastRow *row = task;
    return row->kind == COMPLEMENT ? fast_sums_of(row, start, end, COMPLEMENT, 0)
                                   : fast_sums_of(row, start, end, PLAIN, 0);
}

/* p, and its sum in doubles. */
static Part fast_write(const void *task, int64_t start, int64_t end) {
    const FastRow *row = task;
    float *restrict p = row->p;
    const float scale = row->scale;
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = start; i < end; i++) {
        const float u = p[i] * scale;
        p[i] = u / (1.0f + u);
        total += (double)p[i];
    }
    Part out = NO_PART;
    out.sum[0] = total;
    return out;
}

/* Solves an ordinary row into p and returns 1; returns 0, with p undefined, for others. */
static int fast_forward(const float *x, float *p, int64_t n, double k, double inv_tau,
                        int32_t threads, Root *out) {
    FastRow row = {.x = x, .p = p, .kind = PLAIN};
    int64_t first = 0;
    while (first < n && !(x[first] > -INFINITY)) first++;
    if (first == n) return 0;
    row.origin = x[first]; /* the moments are taken about a unit, which they lie close to */
    Part of = over_row(fast_summary, &row, n, threads);
    if (!(of.least > -INFINITY)) {
        row.kind = MASKED;
        of = over_row(fast_masked_summary, &row, n, threads);
    }
    /* NaN and +inf show in the sum */
    const double units = of.sum[2], rest = units - k, logit = log(k) - log(rest);
    const int ordinary = (of.most - of.least) * inv_tau < SPREAD && fabs(logit) < LOGIT_RANGE;
    if (!isfinite(of.sum[0]) || !ordinary) return 0;
    const double mean = of.sum[0] / units, spread = of.sum[1] / units - mean * mean;
    const double var = spread > 0 ? spread * inv_tau * inv_tau : 0;
    /* c is that of the scores less the origin */
    const double lo = logit - (of.most - row.origin) * inv_tau;
    const double hi = logit - (of.least - row.origin) * inv_tau;
    double c = logit * sqrt(1 + PI_8 * var) - mean * inv_tau;
    c = c < lo ? lo : c > hi ? hi : c;
    const double c0 = c;
    shift_to(&row, c0, inv_tau);
    /* a masked unit has p = 0 and would count as 1 - p = 1 */
    if (row.kind == PLAIN && k > 0.5 * units) row.kind = COMPLEMENT;
    for (int iterations = 1; iterations <= FAST_ITERATIONS; iterations++) {
        const Pass pass = iterations == 1 ? fast_first_sums : fast_sums;
        const Part at = over_row(pass, &row, n, threads);
        const double r = row.kind == COMPLEMENT ? rest - at.sum[0] : at.sum[0] - k;
        const double step = halley_step(r, at.sum[1], at.sum[2], k, rest, units);
        if (!within(c + step, lo, hi)) return 0;
        c += step;
        row.scale = (float)exp(c - c0);
        if (fabs(step) <= FAST_LAST_STEP) {
            /* many equal units may all be rounded one way */
            const double total = over_row(fast_write, &row, n, threads).sum[0];
            if (!(fabs(total - k) <= FAST_ERROR * k)) return 0;
            *out = (Root){.c = c - (double)row.origin * inv_tau,
                          .residual = residual(total, k, units),
                          .iterations = iterations};
            return 1;
        }
    }
    return 0;
}

/* Sums of d = p (1 - p) and of d g. */
static Part fast_slopes(const void *task, int64_t start, int64_t end) {
    const FastRow *row = task;
    const float *restrict p = row->p, *restrict g = row->g;
    Part out = NO_PART;
    for (int64_t from = start; from < end; from += BLOCK) {
        const int64_t to = from + BLOCK < end ? from + BLOCK : end;
        float a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
        for (int64_t i = from; i < to; i++) {
            const float d = p[i] * (1.0f - p[i]);
            a += d;
            b += d * g[i];
        }
        out.sum[0] += a;
        out.sum[1] += b;
    }
    return out;
}

static Part fast_grad(const void *task, int64_t start, int64_t end) {
    const FastRow *row = task;
    const float *restrict p = row->p, *restrict g = row->g;
    float *restrict grad_x = row->grad_x;
    const float mean = row->mean, inv_tau = row->inv_tau;
#pragma omp simd
    for (int64_t i = start; i < end; i++)
        grad_x[i] = p[i] * (1.0f - p[i]) * ((g[i] - mean) * inv_tau);
    return NO_PART;
}

/* The same sums from x, where p is not at hand or too close to 1 for 1 - p; d is left in
 * grad_x. */
static Part fast_careful_slopes(const void *task, int64_t start, int64_t end) {
    const FastRow *row = task;
    const float *restrict x = row->x, *restrict g = row->g;
    float *restrict grad_x = row->grad_x;
    const float threshold = row->threshold, slope = row->slope, left = row->left;
    Part out = NO_PART;
    for (int64_t from = start; from < end; from += BLOCK) {
        const int64_t to = from + BLOCK < end ? from + BLOCK : end;
        float a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
        for (int64_t i = from; i < to; i++) {
            const float v = fabsf((x[i] - threshold) * slope + left);
            const float u = exp2_float(-(v < 120.0f ? v : 120.0f)), r = 1.0f / (1.0f + u);
            const float d = x[i] > -INFINITY ? u * r * r : 0.0f;
            a += d;
            b += d * g[i];
            grad_x[i] = d;
        }
        out.sum[0] += a;
        out.sum[1] += b;
    }
    return out;
}

/* grad_x from the d left in it, and the sum of d (g - mean) (s + c) / log 2. */
static Part fast_careful_grad(const void *task, int64_t start, int64_t end) {
    const FastRow *row = task;
    const float *restrict x = row->x, *restrict g = row->g;
    float *restrict grad_x = row->grad_x;
    const float threshold = row->threshold, slope = row->slope, left = row->left;
    const float mean = row->mean, inv_tau = row->inv_tau;
    double moment = 0;
#pragma omp simd reduction(+ : moment)
    for (int64_t i = start; i < end; i++) {
        const float v = (x[i] - threshold) * slope + left;
        const float grad = grad_x[i] * (g[i] - mean);
        moment += x[i] > -INFINITY ? grad * v : 0.0f;
        grad_x[i] = grad * inv_tau;
    }
    Part out = NO_PART;
    out.sum[0] = moment;
    return out;
}

/* The cotangents of an ordinary row, and 1; or 0, with grad_x undefined, for others.
 *
 * p may be null, and grad_tau. d = p (1 - p) has the rounding of p wherever p > 1/2, which is
 * so for at most 2 k units: within 1e-6 of the sum of all d if that is above k / 16.
 */
static int fast_backward(const float *g, const float *x, const float *p, int64_t n, double k,
                         double inv_tau, double c, int32_t threads, float *grad_x,
                         double *grad_k, double *grad_tau) {
    FastRow row = {.x = x, .g = g, .p = (float *)p, .grad_x = grad_x};
    if (!(inv_tau <= FLT_MAX)) return 0; /* 0 times it would be NaN */
    shift_to(&row, c, inv_tau);
    if (p && !grad_tau) {
        const Part of = over_row(fast_slopes, &row, n, threads);
        if (of.sum[0] * 16 > k) {
            *grad_k = of.sum[1] / of.sum[0];
            row.mean = (float)*grad_k;
            over_row(fast_grad, &row, n, threads);
            return 1;
        }
    }
    const Part of = over_row(fast_careful_slopes, &row, n, threads);
    if (!(of.sum[0] > 1e-20)) return 0; /* all saturated, or k at an end */
    *grad_k = of.sum[1] / of.sum[0];
    row.mean = (float)*grad_k;
    const Part moment = over_row(fast_careful_grad, &row, n, threads);
    if (grad_tau) *grad_tau = -moment.sum[0] * LOG_2 * inv_tau;
    return 1;
}

/* The fast path of sigmoid_topk.c for ordinary float rows; included by it.
 *
 * One exponential a unit: e_i = exp(s_i + c0) at the guess c0 goes into the output
 * itself, and sigmoid(s_i + c) = u / (1 + u) with u = e_i exp(c - c0), so no further
 * step of the root finder needs another. Floats are summed in blocks of BLOCK and
 * doubles across them, always in the same order. Only 1 - p is summed where k is
 * nearer to n: whichever sum is smaller keeps its digits.
 *
 * A row is ordinary if its scores lie within SPREAD of each other, so that no e_i
 * leaves the range of a float, and if Halley's steps stay in the bracket. All others
 * are left to the careful path, which knows what to do with them.
 */

enum { BLOCK = 512, FAST_ITERATIONS = 8 };
static const double SPREAD = 60, LOGIT_RANGE = 20;
/* Halley leaves an error of the order of its cube, well below a float's digits. */
static const double FAST_LAST_STEP = 1e-3;

/* exp(x) within 2 ulp for |x| <= 87. */
static inline float exp_float(float x) {
    const float shifted = x * 0x1.715476p0f + 0x1.8p23f;
    const float m = shifted - 0x1.8p23f;
    const float r = (x - m * 0x1.63p-1f) + m * 0x1.bd0106p-13f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    uint32_t bits, exponent;
    memcpy(&exponent, &shifted, sizeof exponent);
    memcpy(&bits, &y, sizeof bits);
    bits += exponent << 23;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* Mean and variance are taken about the first unmasked unit, which they lie close to. */
typedef struct {
    double n, mean, var;
    float origin, most, least;
} FastSummary;

/* Returns 0 if the row holds NaN or +inf, or nothing but -inf. */
static int fast_summarise(const float *restrict x, int64_t n, FastSummary *out) {
    int64_t first = 0;
    while (first < n && !(x[first] > -INFINITY)) first++;
    if (first == n) return 0;
    const float origin = x[first];
    double sum = 0, square = 0;
    float most = -INFINITY, least = INFINITY;
    int64_t count = 0;
    int32_t good = 1;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        float a = 0, b = 0;
        int32_t free_units = 0;
#pragma omp simd reduction(+ : a, b, free_units) reduction(max : most) reduction(min : least) \
    reduction(& : good)
        for (int64_t i = start; i < end; i++) {
            const int32_t is_free = x[i] > -INFINITY;
            const float t = is_free ? x[i] - origin : 0.0f;
            good &= x[i] < INFINITY;
            a += t;
            b += t * t;
            free_units += is_free;
            most = x[i] > most ? x[i] : most;
            least = is_free && x[i] < least ? x[i] : least;
        }
        sum += a;
        square += b;
        count += free_units;
    }
    const double mean = sum / (double)count, var = square / (double)count - mean * mean;
    *out = (FastSummary){(double)count, mean, var > 0 ? var : 0, origin, most, least};
    return good;
}

/* f (of 1 - p if complement), and its first two derivatives in c. */
static inline __attribute__((always_inline)) void fast_sums_of(
    const float *restrict e, int64_t n, float scale, const int complement, double sums[3]) {
    double f = 0, f1 = 0, f2 = 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        float a = 0, b = 0, c = 0;
#pragma omp simd reduction(+ : a, b, c)
        for (int64_t i = start; i < end; i++) {
            const float u = e[i] * scale, r = 1.0f / (1.0f + u), p = u * r, d = p * r;
            a += complement ? r : p;
            b += d;
            c += d * (r - p);
        }
        f += a;
        f1 += b;
        f2 += c;
    }
    sums[0] = f;
    sums[1] = f1;
    sums[2] = f2;
}

static void fast_sums(const float *e, int64_t n, float scale, int complement, double sums[3]) {
    if (complement) fast_sums_of(e, n, scale, 1, sums);
    else fast_sums_of(e, n, scale, 0, sums);
}

/* Solves an ordinary row into p and returns 1; returns 0, with p undefined, for others. */
static int fast_forward(const float *restrict x, float *restrict p, int64_t n, double k,
                        double inv_tau, Root *out) {
    FastSummary row;
    if (!fast_summarise(x, n, &row)) return 0;
    const double rest = row.n - k, logit = log(k) - log(rest);
    if (!(((double)row.most - row.least) * inv_tau < SPREAD && fabs(logit) < LOGIT_RANGE)) return 0;
    const double lo = logit - ((double)row.most - row.origin) * inv_tau;
    const double hi = logit - ((double)row.least - row.origin) * inv_tau;
    const double var = row.var * inv_tau * inv_tau;
    double c = logit * sqrt(1 + PI_8 * var) - row.mean * inv_tau; /* of the scores less origin */
    c = c < lo ? lo : c > hi ? hi : c;

    /* About the threshold x - threshold is exact, and there p is most sensitive; what the
     * rounding of the threshold leaves of s + c0 is added back. */
    const double c0 = c;
    const float threshold = (float)(row.origin - c0 / inv_tau), slope = (float)inv_tau;
    const float left = (float)(((double)threshold - row.origin) * inv_tau + c0);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float e = exp_float((x[i] - threshold) * slope + left);
        p[i] = x[i] > -INFINITY ? e : 0.0f;
    }
    /* a masked unit has p = 0 and would count as 1 - p = 1 */
    const double masked = (double)n - row.n;
    const int complement = k > 0.5 * row.n && masked == 0;
    int iterations = 0;
    for (;;) {
        double sums[3];
        fast_sums(p, n, (float)exp(c - c0), complement, sums);
        iterations++;
        const double r = complement ? rest - sums[0] : sums[0] - k;
        const double step = halley_step(r, sums[1], sums[2], k, rest, row.n);
        if (!within(c + step, lo, hi) || iterations == FAST_ITERATIONS) return 0;
        c += step;
        if (fabs(step) <= FAST_LAST_STEP) break;
    }
    const float scale = (float)exp(c - c0);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float u = p[i] * scale;
        p[i] = u / (1.0f + u);
    }
    *out = (Root){.c = c - (double)row.origin * inv_tau, .iterations = iterations};
    return 1;
}

/* The cotangents of an ordinary row, and 1; or 0, with grad_x undefined, for others.
 *
 * Scores are taken about the threshold -c tau, as in fast_forward. grad_tau may be null.
 */
static int fast_backward(const float *restrict g, const float *restrict x, int64_t n,
                         double inv_tau, double c, float *restrict grad_x, double *grad_k,
                         double *grad_tau) {
    const float threshold = (float)(-c / inv_tau), slope = (float)inv_tau;
    const float left = (float)((double)threshold * inv_tau + c);
    double total = 0, dot = 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        float a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
        for (int64_t i = start; i < end; i++) {
            const float t = fabsf((x[i] - threshold) * slope + left);
            const float u = exp_float(-(t < 80.0f ? t : 80.0f)), r = 1.0f / (1.0f + u);
            const float d = x[i] > -INFINITY ? u * r * r : 0.0f;
            a += d;
            b += d * g[i];
            grad_x[i] = d;
        }
        total += a;
        dot += b;
    }
    if (!(total > 1e-20)) return 0; /* all saturated, or k at an end */
    const double m = dot / total;
    const float mean = (float)m;
    if (grad_tau) {
        double moment = 0;
#pragma omp simd reduction(+ : moment)
        for (int64_t i = 0; i < n; i++) {
            const float t = (x[i] - threshold) * slope + left;
            const float grad = grad_x[i] * (g[i] - mean);
            moment += x[i] > -INFINITY ? grad * t : 0.0f;
        }
        *grad_tau = -moment * inv_tau;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) grad_x[i] *= (g[i] - mean) * slope;
    *grad_k = m;
    return 1;
}

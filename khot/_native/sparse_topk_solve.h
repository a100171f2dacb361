/* The search of sparse_topk.c for the root of one row of REAL scores, once for each WORK in
 * which it is summed. */

/* In WORK block by block, in double across the blocks. */
static inline __attribute__((always_inline)) Sums WORK_NAME(sum_row_of)(
    const REAL *restrict x, int64_t n, double inv_tau, double c, double d, const int cube) {
    /* what the rounding of c leaves goes into d */
    const WORK slope = inv_tau < WORK_LARGEST ? (WORK)inv_tau : WORK_LARGEST, shift = (WORK)c;
    const WORK left = (WORK)(d + (c - shift) * inv_tau), half = (WORK)0.5;
    const WORK zero = 0, one = 1, three = 3;
    double total_low = 0, total_high = 0, total_rate = 0;
    int64_t h = 0;
    REAL above = (REAL)INFINITY;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        WORK low = 0, high = 0, rates = 0;
        int32_t big = 0;
#pragma omp simd reduction(+ : big, low, high, rates) reduction(min : above)
        for (int64_t i = start; i < end; i++) {
            const WORK t = ((WORK)x[i] + shift) * slope + left;
            const WORK floored = t > zero ? t : zero, u = floored < one ? floored : one;
            const WORK v = one - u;
            const WORK y = cube ? u * u * u : u, rest = cube ? v * (one + u * (one + u)) : v;
            big += t > half;
            low += t > half ? zero : y;
            high += t > half ? rest : zero;
            rates += t > zero && t < one ? (cube ? three * u * u : one) : zero;
            above = t >= zero && x[i] < above ? x[i] : above;
        }
        h += big;
        total_low += low;
        total_high += high;
        total_rate += rates;
    }
    return (Sums){(double)h, total_low, total_high, total_rate, above};
}

static Sums WORK_NAME(sum_row)(const REAL *x, int64_t n, double inv_tau, double c, double d,
                               int cube) {
    return cube ? WORK_NAME(sum_row_of)(x, n, inv_tau, c, d, 1)
                : WORK_NAME(sum_row_of)(x, n, inv_tau, c, d, 0);
}

/* The root for 0 < k < n: d within [lo, hi] about an anchor that follows the threshold. */
static Root WORK_NAME(solve)(const REAL *x, int64_t n, double k, double tau, int cube,
                             const Summary *row) {
    /* no t may overflow, of units that are not free anyway */
    const double range = row->most - row->least, far = WORK_LARGEST / 4 / range;
    const double most = far < WORK_LARGEST ? far : WORK_LARGEST;
    const double inv_tau = inverse(tau) < most ? inverse(tau) : most;
    const double centre = cube ? 3.0 / 4 : 1.0 / 2, spread = cube ? 3.0 / 80 : 1.0 / 12;
    const double sigma = sqrt(row->var * inv_tau * inv_tau + spread);
    /* up to the rounding of t, which may be more than the 1 */
    double anchor = row->most, lo = 0, hi = range * inv_tau * (1 + 4 * EPSILON) + 1;
    double d = (row->most - row->mean) * inv_tau + centre + sigma * probit(k / row->n);
    double before = INFINITY, width = INFINITY; /* of the bracket, two steps and one step ago */
    if (!(d > lo && d < hi)) d = lo / 2 + hi / 2;
    for (int i = 0; i < MOST_ITERATIONS; i++) {
        d = (WORK)d; /* as it is summed */
        const Sums a = WORK_NAME(sum_row)(x, n, inv_tau, -anchor, d, cube);
        const double r = (a.h - k) + a.low - a.high, step = newton_step(&a, r, k, cube);
        const double noise = EPSILON * (4 * (a.low + a.high) + (a.h > 0 ? a.slope : 0));
        if (r <= 0 && d > lo) lo = d;
        if (r >= 0 && d < hi) hi = d;
        const int crawls = hi - lo > 0.5 * before && (fabs(step) > 1 || i > PATIENCE);
        before = width;
        width = hi - lo;
        const double middle = (WORK)(lo / 2 + hi / 2);
        const int solved = fabs(r) <= noise, closed = !(middle > lo && middle < hi);
        double next = d + step;
        if (!(next >= lo && next <= hi)) next = solved ? d : middle;
        else if (crawls && !solved) next = middle;
        /* the root is between two neighbours: seen from the upper one the anchor is nearer */
        if (closed && !solved) next = r < 0 ? hi : d;

        const double moved = a.above < INFINITY ? (a.above - anchor) * inv_tau : 0.0;
        const int follows = fabs(next + moved) < fabs(next);
        if ((!follows && (solved || (WORK)next == d)) || (solved && fabs(moved) * a.slope <= k)) {
            if (inv_tau == inverse(tau)) return (Root){-anchor, next};
            /* at a scale so small that none but equals of the anchor can be free: seen from it,
             * the same at tau's own */
            const double at = next + moved;
            return (Root){moved == 0 ? -anchor : -a.above, at < 1 ? at : 1};
        }
        d = next;
        if (!follows) continue;
        /* sums about an anchor so far away were rounded by as much */
        const double slack = 4 * EPSILON * (fabs(d) + fabs(moved));
        anchor = a.above;
        d += moved;
        lo += moved - slack;
        hi += moved + slack;
    }
    return (Root){-anchor, d};
}

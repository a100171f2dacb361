/* The float that comes at this place: below 0, the bits but the sign count down. */
static inline REAL FLOAT(INTEGER place) {
    const INTEGER bits = place < 0 ? place ^ GREATEST : place;
    REAL x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline int64_t COUNT(const REAL *x, int64_t n, REAL least) {
    INTEGER count = 0;
    for (int64_t i = 0; i < n; i++) count += x[i] >= least;
    return count;
}

/* z (rows, n) of zeros and k ones; k has one entry for each of `sizes` rows, which repeat. NaN is
 * never among the largest, so there may be less. */
KHOT_EXPORT void NAME(const REAL *x, const int64_t *k, int64_t sizes, int64_t rows, int64_t n,
                      REAL *z, int32_t threads) {
#pragma omp parallel for schedule(static) num_threads(threads) \
    if (threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const REAL *from = x + r * n;
        REAL *to = z + r * n;
        const int64_t wanted = k[r % sizes];
        const REAL most = (REAL)INFINITY, least = -most;
        /* count(x >= lo) >= wanted > count(x >= hi): from -inf to the NaN above +inf */
        INTEGER lo, hi, middle;
        memcpy(&hi, &most, sizeof hi);
        lo = ~hi;
        hi++;
        REAL threshold = wanted > 0 ? least : FLOAT(hi);
        int64_t count = wanted > 0 ? n : 0;
        while (count != wanted && (middle = (lo & hi) + ((lo ^ hi) >> 1)) != lo) {
            const int64_t here = COUNT(from, n, FLOAT(middle));
            if (here < wanted) {
                hi = middle;
            } else {
                lo = middle;
                threshold = FLOAT(middle);
                count = here;
            }
        }
        for (int64_t i = 0; i < n; i++) to[i] = from[i] >= threshold;
        for (int64_t i = n - 1; count > wanted && i >= 0; i--)
            if (from[i] == threshold) to[i] = 0, count--;
    }
}

/* The part of iterated_poisson.c that touches probabilities, once for each REAL. */

/* z (samples, rows, n) for pi (rows, n), k (rows) or null where the sums decide, and a seed for each
 * row. Returns how many rows must be left to torch, because of their values or a sum that is not
 * whole; -1 if there is no memory. */
KHOT_EXPORT int64_t NAME(khot_iterated_poisson)(const REAL *pi, const double *k, double tolerance,
                                                const uint64_t *seeds, REAL *z, int64_t samples,
                                                int64_t rows, int64_t n, int64_t rounds,
                                                int32_t threads) {
    int64_t refused = 0;
    int32_t lacking = 0;
#pragma omp parallel num_threads(threads) reduction(+ : refused) reduction(| : lacking) \
    if (threads > 1 && samples * rows * n > KHOT_PARALLEL_ELEMENTS)
    {
        const Scratch s = new_scratch(n);
        lacking = !s.rest;
#pragma omp for schedule(static)
        for (int64_t t = 0; t < samples * rows; t++) {
            if (lacking) continue;
            const int64_t b = t % rows;
            const REAL *restrict p = pi + b * n;
            int32_t good = 1;
            for (int64_t i = 0; i < n; i++) {
                good &= p[i] >= 0 && p[i] <= 1;
                s.rest[i] = s.sum[i] = (double)p[i];
            }
            const double total = k ? k[b] : halved_sum(s.sum, n);
            if (!good || !is_whole(total, k ? 0 : tolerance)) {
                refused++;
                continue;
            }
            double missing = rint(total);
            for (int64_t round = 0; round < rounds && (round == 0 || missing > 0); round++) {
                philox_fill_from((uint32_t *)s.pairs, round * ((n + 1) / 2), 2 * n, seeds[b],
                                 (uint32_t)(t / rows));
                missing -= (double)(round == 0 ? begin(&s, n) : repeat(&s, n, missing));
            }
            for (int64_t i = 0; i < n; i++) z[t * n + i] = s.rest[i] < 0;
        }
        free(s.rest);
    }
    return lacking ? -1 : refused;
}

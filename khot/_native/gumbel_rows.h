/* out (samples, rows, n), from the numbers of block 0 on. */
KHOT_EXPORT void NAME(const uint64_t *seeds, int64_t samples, int64_t rows, int64_t n, REAL *out,
                      int32_t threads) {
    enum { CHUNK = 512, STEP = 8 }; /* numbers at a time: they stay in the first cache */
#pragma omp parallel for schedule(static) num_threads(threads) \
    if (threads > 1 && samples * rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < samples * rows; t++) {
        uint64_t pairs[CHUNK];
        REAL noise[CHUNK];
        for (int64_t start = 0; start < n; start += CHUNK) {
            const int64_t here = n - start < CHUNK ? n - start : CHUNK;
            philox_fill_from((uint32_t *)(void *)pairs, start / 2, 2 * here, seeds[t % rows],
                             (uint32_t)(t / rows));
            /* whole steps: a remainder could be rounded otherwise, and depend on n */
            for (int64_t i = 0; i < here; i += STEP)
                for (int64_t j = i; j < i + STEP; j++)
                    noise[j] = (REAL)minus_log(minus_log(philox_uniform(pairs[j])));
            memcpy(out + t * n + start, noise, (size_t)here * sizeof *noise);
        }
    }
}

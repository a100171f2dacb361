/* out (samples, rows, count): numbers of WORDS_EACH words, which TAKE makes into REAL. */
KHOT_EXPORT void NAME(const uint64_t *seeds, int64_t samples, int64_t rows, int64_t count,
                      int64_t block, REAL *out, int32_t threads) {
    enum { CHUNK = 512 }; /* pairs of words at a time: they stay in the first cache */
    const int64_t most = 2 * CHUNK / WORDS_EACH;
#pragma omp parallel for schedule(static) num_threads(threads) \
    if (threads > 1 && samples * rows * count > KHOT_PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < samples * rows; t++) {
        uint64_t pairs[CHUNK];
        for (int64_t start = 0; start < count; start += most) {
            const int64_t here = count - start < most ? count - start : most;
            philox_fill_from((uint32_t *)(void *)pairs, block + WORDS_EACH * start / 4,
                             WORDS_EACH * here, seeds[t % rows], (uint32_t)(t / rows));
            REAL *to = out + t * count + start;
            for (int64_t i = 0; i < here; i++) to[i] = TAKE(pairs, i);
        }
    }
}

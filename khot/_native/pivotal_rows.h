/* The part of pivotal.c that touches probabilities, once for each REAL. */

/* Writes the parts of a row and returns how many units fight: n, or n + 1 with a phantom; 0 if
 * the row must be refused. k is null where the sum decides, whole within `tolerance` of itself. */
static int64_t NAME(prepare)(const REAL *restrict p, int64_t n, const double *k, double tolerance,
                             const Scratch *s) {
    int32_t good = 1;
#pragma omp simd reduction(& : good)
    for (int64_t i = 0; i < n; i++) {
        good &= p[i] >= 0 && p[i] <= 1;
        s->part[i] = as_part((double)p[i]);
    }
    if (!good) return 0;
    double total = k ? *k : 0;
    if (!k) {
        double *numbers = (double *)(void *)s->sum;
        for (int64_t i = 0; i < n; i++) numbers[i] = (double)p[i];
        total = halved_sum(numbers, n);
    }
    if (is_whole(total, k ? 0 : tolerance)) return n;
    s->part[n] = as_part(1 - (total - floor(total)));
    return n + 1;
}

/* One draw of m units, of which z has the first n: what is carried, who stays, who carries. */
static void NAME(fight)(const Scratch *s, int64_t m, int64_t n, REAL *restrict z) {
    shuffle(s, m);
    uint64_t carried = 0;
    for (int64_t j = 0; j < m; j++) {
        s->sum[j] = carried + s->part[s->order[j]];
        carried = s->sum[j] & (UNIT - 1);
    }
    uint64_t *restrict pair = (uint64_t *)(void *)(s->words + words_of_order(m));
    const uint64_t *restrict sum = s->sum;
    pair[0] = stays(0, sum[0], pair[0]);
#pragma omp simd
    for (int64_t j = 1; j < m; j++) pair[j] = stays(sum[j - 1] & (UNIT - 1), sum[j], pair[j]);

    uint64_t carrier = (uint64_t)n; /* nobody yet: a place that z does not have */
    for (int64_t j = 0; j < m; j++) {
        const uint64_t unit = s->order[j];
        /* without branches, which would be guessed wrong */
        const uint64_t decided = carrier ^ ((carrier ^ unit) & pair[j]);
        if (decided < (uint64_t)n) z[decided] = (REAL)(int32_t)(sum[j] >> 52);
        carrier ^= unit ^ decided;
    }
    if (carrier < (uint64_t)n) z[carrier] = carried >= UNIT / 2 ? 1 : 0;
}

/* z (samples, rows, n) for pi (rows, n), k (rows) or null, and a seed for each row. Returns how many
 * rows were refused; -1 if there is no memory. */
KHOT_EXPORT int64_t NAME(khot_pivotal)(const REAL *pi, const double *k, double tolerance,
                                       const uint64_t *seeds, REAL *z, int64_t samples,
                                       int64_t rows, int64_t n, int32_t stateful,
                                       int32_t threads) {
    int64_t refused = 0;
    int32_t lacking = 0;
#pragma omp parallel num_threads(threads) reduction(+ : refused) reduction(| : lacking) \
    if (threads > 1 && samples * rows * n > KHOT_PARALLEL_ELEMENTS)
    {
        const Scratch s = new_scratch(n);
        uint64_t state[4] = {1, 2, 3, 4};
        lacking = !s.part;
#pragma omp for schedule(static)
        for (int64_t t = 0; t < samples * rows; t++) {
            if (lacking) continue;
            const int64_t b = t % rows;
            const int64_t m = NAME(prepare)(pi + b * n, n, k ? k + b : NULL, tolerance, &s);
            if (m == 0) {
                refused++;
                continue;
            }
            const int64_t words = words_of_order(m) + 2 * m;
            if (stateful) stateful_fill(s.words, words, state);
            else philox_fill(s.words, words, seeds[b], (uint32_t)(t / rows));
            NAME(fight)(&s, m, n, z + t * n);
        }
        free(s.part);
    }
    return lacking ? -1 : refused;
}

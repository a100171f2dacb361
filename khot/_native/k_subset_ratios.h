/* Draws from the k-subset law, once for each REAL: see khot/_ksubset_ratios.py, whose docstring
 * holds the recursion. Lanes are rows, each with its own k and its own units: those that are
 * masked are left out, and the others end together.
 */

typedef struct {
    int64_t row[LANES], n[LANES], k[LANES]; /* n = 0 in a lane without a row */
    int64_t most_n, most_k, most_left;      /* left out: n - k */
    int64_t stride, length, first;          /* of the table: a row, the rows, the row it begins at */
    NAME(Lanes) *weight;                    /* of the r-th unit from the end, at r - 1 */
    int32_t *unit;                          /* its index, at (r - 1) LANES + lane */
    NAME(Lanes) *table, *saved;
    REAL *chance; /* of one lane, (k, n), if it has so many samples that it pays; else NULL */
} NAME(Group);

/* The ratios after r units, from the end, are those of m = low to min(k, r) ones. */
static int64_t NAME(low)(const NAME(Group) *of, int64_t r) {
    return r > of->most_left ? r - of->most_left : 0;
}

static void NAME(add_unit)(const NAME(Group) *of, int64_t r, const NAME(Lanes) *below,
                           NAME(Lanes) *out) {
    const NAME(Lanes) w = of->weight[r - 1];
    const int64_t most = of->most_k < r ? of->most_k : r, least = NAME(low)(of, r);
    below -= NAME(low)(of, r - 1);
    out -= least;
    int64_t m = least > 1 ? least : 1;
    NAME(Lanes) left_out = (NAME(Lanes)){0} + 1;
    if (m > 1) left_out = below[m - 1] / (w + below[m - 1]);
    for (; m <= most; m++) {
        const NAME(Lanes) s = below[m], sum = w + s;
        out[m] = sum * left_out;
        left_out = s / sum;
    }
    if (most < of->most_k) out[most + 1] = (NAME(Lanes)){0}; /* there are not that many units */
}

/* The table from row `first` on, which its slot 0 holds; the last slot begins the next part. */
static void NAME(fill)(NAME(Group) *of, int64_t first) {
    of->first = first;
    for (int64_t j = 1; j <= of->length && first + j < of->most_n; j++)
        NAME(add_unit)(of, first + j, of->table + (j - 1) * of->stride, of->table + j * of->stride);
}

/* All rows once. The last part stays in the table, and the first row of each part is saved. */
static void NAME(sweep)(NAME(Group) *of) {
    const size_t bytes = (size_t)of->stride * sizeof *of->table;
    memset(of->table, 0, bytes);
    for (int64_t first = 0;; first += of->length) {
        memcpy(of->saved + first / of->length * of->stride, of->table, bytes);
        NAME(fill)(of, first);
        if (first + of->length >= of->most_n) return;
        memcpy(of->table, of->table + of->length * of->stride, bytes);
    }
}

/* Makes the part before that in the table again. */
static void NAME(step_back)(NAME(Group) *of) {
    const int64_t first = of->first - of->length;
    memcpy(of->table, of->saved + first / of->length * of->stride,
           (size_t)of->stride * sizeof *of->table);
    NAME(fill)(of, first);
}

static void NAME(load_lane)(NAME(Group) *of, int l, const REAL *theta, int64_t n, double c) {
    int64_t r = 0;
    for (int64_t i = n - 1; i >= 0; i--) {
        if (!(theta[i] > (REAL)-INFINITY)) continue;
        double t = (double)theta[i] + c;
        t = t > NAME(REACH) ? NAME(REACH) : t < -NAME(REACH) ? -NAME(REACH) : t;
        of->weight[r][l] = (REAL)(t > 0 ? 1 / exp_minus(t) : exp_minus(-t));
        of->unit[r * LANES + l] = (int32_t)i;
        r++;
    }
    of->n[l] = r;
}

/* Walks the units r = last, ..., table's first + 1 of a lane; returns how many are still to take. */
static int64_t NAME(walk)(const NAME(Group) *of, int l, int64_t last, int64_t m, const double *u,
                          REAL *z) {
    for (int64_t r = last < of->n[l] ? last : of->n[l]; r > of->first && m > 0; r--) {
        const int64_t unit = of->unit[(r - 1) * LANES + l];
        if (m < r) {
            const int64_t slot = (r - 1 - of->first) * of->stride + m - NAME(low)(of, r - 1);
            const REAL w = of->weight[r - 1][l], q = w / (w + of->table[slot][l]);
            if (!(u[unit] < (double)q)) continue;
        }
        z[unit] = 1;
        m--;
    }
    return m;
}

/* The chance of each unit to be taken with m left, at (m - 1) n + unit: what `walk` computes. */
static void NAME(tabulate)(const NAME(Group) *of, int l, int64_t n) {
    memset(of->chance, 0, (size_t)(of->k[l] * n) * sizeof *of->chance);
    for (int64_t r = 1; r <= of->n[l]; r++) {
        const int64_t low = NAME(low)(of, r - 1);
        const NAME(Lanes) *below = of->table + (r - 1) * of->stride - low;
        const REAL w = of->weight[r - 1][l];
        REAL *out = of->chance + of->unit[(r - 1) * LANES + l] - n;
        for (int64_t m = low > 1 ? low : 1; m <= of->k[l]; m++)
            out[m * n] = m < r ? w / (w + below[m][l]) : 2;
    }
}

/* The same walk as `walk`, by that table: with neither its divisions nor its leaps. */
static void NAME(walk_by_chance)(const REAL *chance, int64_t n, int64_t m, const double *u,
                                 REAL *z) {
    chance += (m - 1) * n;
    for (int64_t unit = 0; unit < n && m > 0; unit++) {
        if (!(u[unit] < (double)chance[unit])) continue;
        z[unit] = 1;
        m--;
        chance -= n;
    }
}

static void NAME(draw_group)(NAME(Group) *of, const Numbers *numbers, int64_t n, REAL *z) {
    NAME(sweep)(of);
    for (int l = 0; l < LANES && of->chance; l++) {
        if (!of->n[l] || !of->k[l]) continue;
        NAME(tabulate)(of, l, n);
        for (int64_t s = 0; s < numbers->samples; s++) {
            const double *u = numbers_of(numbers, s, of->row[l], n);
            REAL *own = z + (s * numbers->rows + of->row[l]) * n;
            NAME(walk_by_chance)(of->chance, n, of->k[l], u, own);
        }
    }
    if (of->chance) return;
    for (int l = 0; l < LANES; l++)
        for (int64_t s = 0; s < numbers->samples; s++)
            numbers->to_take[l * numbers->samples + s] = of->k[l];
    for (int64_t last = of->most_n;;) {
        for (int l = 0; l < LANES; l++)
            for (int64_t s = 0; s < numbers->samples && of->n[l]; s++) {
                int64_t *m = numbers->to_take + l * numbers->samples + s;
                const double *u = numbers_of(numbers, s, of->row[l], n);
                *m = NAME(walk)(of, l, last, *m, u, z + (s * numbers->rows + of->row[l]) * n);
            }
        if (of->first == 0) return;
        last = of->first;
        NAME(step_back)(of);
    }
}

/* The sizes of a group of rows, and of its table: all of it, or what TABLE_BYTES hold. */
static void NAME(measure)(NAME(Group) *of) {
    of->most_n = of->most_k = of->most_left = 1;
    for (int l = 0; l < LANES; l++) {
        of->most_n = of->n[l] > of->most_n ? of->n[l] : of->most_n;
        of->most_k = of->k[l] > of->most_k ? of->k[l] : of->most_k;
        const int64_t left = of->n[l] - of->k[l];
        of->most_left = left > of->most_left ? left : of->most_left;
    }
    of->stride = (of->most_k < of->most_left ? of->most_k : of->most_left) + 2;
    const int64_t fits = TABLE_BYTES / (of->stride * (int64_t)sizeof *of->table);
    const int64_t root = (int64_t)sqrt((double)of->most_n) + 1;
    of->length = fits > root ? fits : root;
    if (of->length > of->most_n) of->length = of->most_n;
}

/* The rows from `begin` on that make a group. */
static int NAME(draw_rows)(const REAL *theta, const double *k, int64_t k_stride, const double *c,
                           const Numbers *numbers, REAL *z, int64_t n, int64_t begin,
                           void *memory) {
    NAME(Group) of = {.weight = memory, .unit = (int32_t *)((NAME(Lanes) *)memory + n)};
    for (int64_t r = 0; r < n; r++) of.weight[r] = (NAME(Lanes)){0} + 1;
    for (int l = 0; l < LANES && begin + l < numbers->rows; l++) {
        const int64_t b = begin + l;
        if (isfinite(c[b])) {
            NAME(load_lane)(&of, l, theta + b * n, n, c[b]);
            of.row[l] = b;
            of.k[l] = (int64_t)k[b * k_stride];
        } else if (c[b] > 0) {
            for (int64_t s = 0; s < numbers->samples; s++)
                NAME(no_choice)(theta + b * n, n, 1, z + (s * numbers->rows + b) * n, NULL);
        }
    }
    NAME(measure)(&of);
    const int64_t parts = (of.most_n + of.length - 1) / of.length;
    const size_t cells = (size_t)(of.length + 1 + parts) * (size_t)of.stride;
    const size_t every = (size_t)(of.most_k * n) * sizeof(REAL);
    const int by_chance = parts == 1 && numbers->samples >= MANY_SAMPLES && every <= TABLE_BYTES;
    const size_t chances = by_chance ? every : 0;
    const size_t tables = (cells + 1) / 2 * 2 * sizeof *of.table;
    char *room = aligned_alloc(64, (tables + chances + 63) / 64 * 64);
    if (!room) return 0;
    of.table = (NAME(Lanes) *)(void *)room;
    of.saved = of.table + (of.length + 1) * of.stride;
    of.chance = by_chance ? (REAL *)(void *)(room + tables) : NULL;
    NAME(draw_group)(&of, numbers, n, z);
    free(room);
    return 1;
}

/* Ones in z (samples, rows, n), which holds zeros: a unit is taken where its number is below its
 * probability given those before. The numbers are u, of the same shape, or unless that is given
 * those of the rows' seeds, from the sample `first` on. Returns 0 if memory is out. */
KHOT_EXPORT int64_t NAME(khot_k_subset_draw)(const REAL *theta, const double *k, int64_t k_stride,
                                             const double *c, const double *u, const int64_t *seeds,
                                             int64_t first, int64_t samples, REAL *z, int64_t rows,
                                             int64_t n, int32_t threads) {
    int64_t good = 1;
    const size_t group = (size_t)n * (sizeof(NAME(Lanes)) + LANES * sizeof(int32_t));
    (void)threads;
#pragma omp parallel num_threads(threads) reduction(& : good) \
    if (threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS / 2)
    {
        Numbers numbers = {u, seeds, first, samples, rows, NULL, NULL, NULL};
        char *memory = aligned_alloc(64, numbers_bytes(group, &numbers, n, LANES));
        good = memory != NULL;
        if (memory) place_numbers(&numbers, memory + group, n, LANES);
#pragma omp for schedule(dynamic)
        for (int64_t begin = 0; begin < rows; begin += LANES)
            good = good && NAME(draw_rows)(theta, k, k_stride, c, &numbers, z, n, begin, memory);
        free(memory);
    }
    return good;
}

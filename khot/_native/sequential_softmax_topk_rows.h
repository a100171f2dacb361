/* The part of sequential_softmax_topk.c that touches scores, once for each REAL. */

/* alpha of the first round: x less its greatest. Returns how many units are above -inf; -1 if the
 * row is to be refused: NaN or +inf, or an infinite difference of scores. */
static int64_t NAME(begin)(const REAL *restrict x, int64_t n, double *restrict alpha) {
    REAL most = (REAL)-INFINITY, least = (REAL)INFINITY;
    int64_t units = 0;
    int good = 1;
    for (int64_t i = 0; i < n; i++) {
        const int unmasked = x[i] > (REAL)-INFINITY;
        good &= x[i] < (REAL)INFINITY; /* false for NaN too */
        units += unmasked;
        most = x[i] > most ? x[i] : most;
        least = unmasked && x[i] < least ? x[i] : least;
    }
    if (!good || (units > 0 && (double)most - (double)least == INFINITY)) return -1;
    for (int64_t i = 0; i < n; i++) {
        const double s = (double)x[i] - (units ? (double)most : 0.0);
        alpha[i] = s < LOWEST && s > -INFINITY ? LOWEST : s;
    }
    return units;
}

/* y (rows, n), the sum of k softmaxes. tau is a column with a stride, 0 for one entry that
 * serves all rows. Returns how many rows were refused, as above or because k is greater than
 * their number of units or tau not finite and above 0; -1 if there is no memory. */
KHOT_EXPORT int64_t NAME(khot_sequential_softmax_topk_forward)(
    const REAL *x, int64_t k, const double *tau, int64_t tau_stride, REAL *y, int64_t rows,
    int64_t n, int32_t threads) {
    int64_t refused = 0, starved = 0;
#pragma omp parallel num_threads(threads) reduction(+ : refused, starved) \
    if (threads > 1 && rows > 1 && rows * n * k > KHOT_PARALLEL_ELEMENTS)
    {
        double *alpha = malloc(3 * (size_t)n * sizeof *alpha), *f = alpha + n, *sum = f + n;
        starved += !alpha;
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            if (!alpha) continue;
            const double taub = tau[row * tau_stride], inv_tau = inverse_of(taub);
            const int64_t units = NAME(begin)(x + row * n, n, alpha);
            if (units < k || !(taub > 0 && taub < INFINITY)) {
                refused++;
                continue;
            }
            memset(sum, 0, (size_t)n * sizeof *sum);
            for (int64_t j = 0; j < k; j++) {
                const Round round = choose(alpha, f, n, inv_tau);
#pragma omp simd
                for (int64_t i = 0; i < n; i++) sum[i] += f[i] * round.scale;
                sum[round.top] += round.p_top;
                if (j + 1 < k) descend(alpha, f, n, &round);
            }
            for (int64_t i = 0; i < n; i++) y[row * n + i] = (REAL)sum[i];
        }
        free(alpha);
    }
    return starved ? -1 : refused;
}

static void NAME(pull_back)(const REAL *g, const REAL *x, int64_t k, double inv_tau, int64_t n,
                            const Kept *kept, REAL *grad_x, double *grad_tau) {
    const size_t row_bytes = (size_t)n * sizeof(double);
    const int64_t segments = (k + kept->rounds - 1) / kept->rounds;
    double *alpha = kept->alpha, moment = 0;
    NAME(begin)(x, n, alpha);
    for (int64_t segment = 0; segment < segments; segment++) {
        memcpy(kept->starts + segment * n, alpha, row_bytes);
        if (segment + 1 == segments) break; /* its rounds are made below */
        for (int64_t j = 0; j < kept->rounds; j++) {
            const Round round = choose(alpha, kept->f, n, inv_tau);
            descend(alpha, kept->f, n, &round);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        kept->g[i] = g[i];
        kept->a[i] = 0;
    }
    const int64_t stride = grad_tau ? n : 0;
    for (int64_t segment = segments - 1; segment >= 0; segment--) {
        const int64_t left = k - segment * kept->rounds;
        const int64_t count = left < kept->rounds ? left : kept->rounds;
        memcpy(kept->alpha, kept->starts + segment * n, row_bytes);
        for (int64_t j = 0; j < count; j++) {
            alpha = kept->alpha + j * stride;
            kept->said[j] = choose(alpha, kept->f + j * n, n, inv_tau);
            if (j + 1 == count) break;
            if (grad_tau) memcpy(alpha + n, alpha, row_bytes);
            descend(alpha + stride, kept->f + j * n, n, &kept->said[j]);
        }
        for (int64_t j = count - 1; j >= 0; j--)
            moment += back(kept->f + j * n, grad_tau ? kept->alpha + j * n : NULL, kept->g, kept->a,
                           n, inv_tau, &kept->said[j]);
    }
    for (int64_t i = 0; i < n; i++)
        grad_x[i] = x[i] > (REAL)-INFINITY ? (REAL)kept->a[i] : (REAL)0;
    if (grad_tau) *grad_tau = -moment * inv_tau;
}

/* The cotangents of x and, unless null, of tau, for the cotangent g of y. Returns -1 if there is
 * no memory. */
KHOT_EXPORT int64_t NAME(khot_sequential_softmax_topk_backward)(
    const REAL *g, const REAL *x, int64_t k, const double *tau, int64_t tau_stride, REAL *grad_x,
    double *grad_tau, int64_t rows, int64_t n, int32_t threads) {
    int64_t starved = 0;
    if (k == 0) {
        memset(grad_x, 0, (size_t)(rows * n) * sizeof *grad_x);
        for (int64_t row = 0; grad_tau && row < rows; row++) grad_tau[row] = 0;
        return 0;
    }
    const int64_t rounds = k * n <= MOST_KEPT ? k : (int64_t)ceil(sqrt((double)k));
    const int64_t segments = (k + rounds - 1) / rounds, alphas = grad_tau ? rounds : 1;
    const size_t numbers = (size_t)n * (size_t)(alphas + rounds + segments + 2);
#pragma omp parallel num_threads(threads) reduction(+ : starved) \
    if (threads > 1 && rows > 1 && rows * n * k > KHOT_PARALLEL_ELEMENTS)
    {
        double *memory = malloc(numbers * sizeof *memory);
        Round *said = malloc((size_t)rounds * sizeof *said);
        const int has = memory && said;
        starved += !has;
        const Kept kept = {
            .rounds = rounds,
            .alpha = memory,
            .f = memory + alphas * n,
            .starts = memory + (alphas + rounds) * n,
            .g = memory + (alphas + rounds + segments) * n,
            .a = memory + (alphas + rounds + segments + 1) * n,
            .said = said,
        };
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            if (!has) continue;
            NAME(pull_back)(g + row * n, x + row * n, k, inverse_of(tau[row * tau_stride]), n,
                            &kept, grad_x + row * n, grad_tau ? grad_tau + row : NULL);
        }
        free(memory);
        free(said);
    }
    return starved ? -1 : 0;
}

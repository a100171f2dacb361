/* The same for rows of few units, LANES of them side by side, once for each REAL: entry i of row l
 * is at i LANES + l. The arithmetic of a row does not know of the others, and lanes without a row
 * hold zeros, so that here too its bits depend on nothing else.
 */

/* What is kept of a group of rows. */
typedef struct {
    double inv_tau[LANES], units[LANES];
    double *alpha; /* of each round if tau wants it, else of one, (rounds, n) */
    double *sum;   /* of the softmaxes; in the backward, the cotangent of alpha, (n) */
    REAL *f, *g;   /* f of each round in the backward, else of one, (rounds, n); g, (n) */
    LaneRound *said;
} NAME(Group);

/* In one piece, that of `alpha`, which is null if there is no memory. */
static NAME(Group) NAME(new_group)(int64_t n, int64_t rounds, int64_t alphas) {
    const size_t entries = (size_t)n * LANES, of_f = entries * (size_t)rounds;
    const size_t of_alpha = entries * (size_t)alphas;
    double *alpha = malloc((size_t)rounds * sizeof(LaneRound) + (of_alpha + entries) * sizeof *alpha +
                           (of_f + entries) * sizeof(REAL));
    double *sum = alpha + of_alpha;
    LaneRound *said = (LaneRound *)(void *)(sum + entries);
    REAL *f = (REAL *)(void *)(said + rounds);
    return (NAME(Group)){.alpha = alpha, .sum = sum, .said = said, .f = f, .g = f + of_f};
}

/* alpha of the first round, and which rows are to be refused: those with -1 units, as `begin` has
 * them. What becomes of their numbers is of no interest. */
static void NAME(begin_lanes)(NAME(Group) *group, const REAL *restrict x, const double *tau,
                              int64_t tau_stride, int64_t rows, int64_t n) {
    double *restrict alpha = group->alpha;
    double most[LANES], least[LANES], units[LANES], bad[LANES];
    for (int l = 0; l < LANES; l++) {
        for (int64_t i = 0; i < n; i++)
            alpha[i * LANES + l] = l < rows ? (double)x[l * n + i] : 0.0;
        group->inv_tau[l] = l < rows ? inverse_of(tau[l * tau_stride]) : 1.0;
        most[l] = -INFINITY;
        least[l] = INFINITY;
        units[l] = bad[l] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const double here = alpha[i * LANES + l];
            const double low = here > -INFINITY ? here : INFINITY;
            bad[l] = here < INFINITY ? bad[l] : 1.0; /* of NaN too */
            units[l] += here > -INFINITY ? 1.0 : 0.0;
            most[l] = here > most[l] ? here : most[l];
            least[l] = low < least[l] ? low : least[l];
        }
    }
    for (int l = 0; l < LANES; l++) {
        const int refused = bad[l] > 0 || (units[l] > 0 && most[l] - least[l] == INFINITY);
        group->units[l] = refused ? -1.0 : units[l];
        most[l] = units[l] > 0 ? most[l] : 0.0;
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const double s = alpha[i * LANES + l] - most[l];
            alpha[i * LANES + l] = s < LOWEST && s > -INFINITY ? LOWEST : s;
        }
    }
}

static void NAME(choose_lanes)(const double *restrict alpha, REAL *restrict f, int64_t n,
                               const double *restrict inv_tau, LaneRound *restrict round) {
    double most[LANES], second[LANES], top[LANES];
    REAL sum[LANES];
    for (int l = 0; l < LANES; l++) {
        most[l] = second[l] = -INFINITY;
        top[l] = 0;
        sum[l] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const double here = alpha[i * LANES + l];
            const int above = here > most[l];
            const double low = above ? most[l] : here;
            top[l] = above ? (double)i : top[l];
            most[l] = above ? here : most[l];
            second[l] = low > second[l] ? low : second[l];
        }
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const double at = second[l] > -INFINITY ? second[l] : 0; /* nobody else is left */
            const double far = (at - alpha[i * LANES + l]) * inv_tau[l];
            const double others = top[l] == (double)i ? INFINITY : far;
            f[i * LANES + l] = NAME(exp_minus)((REAL)others);
            sum[l] += f[i * LANES + l];
        }
    }
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        const double f_sum = (double)sum[l], gap = (second[l] - most[l]) * inv_tau[l];
        const double u = exp_minus(-gap), s = 1 + f_sum * u;
        round->top[l] = top[l];
        round->f_sum[l] = f_sum;
        round->scale[l] = u / s;
        round->p_top[l] = 1 / s;
        round->log_rest[l] = f_sum > 0 ? gap + log_of(f_sum / s) : -INFINITY;
        round->second[l] = second[l];
        round->gap[l] = gap;
    }
}

/* alpha of the next round, which may be in the same place. */
static void NAME(descend_lanes)(const double *alpha, double *next, const REAL *restrict f,
                                int64_t n, const LaneRound *restrict round) {
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const double here = alpha[i * LANES + l], fallen = here + round->log_rest[l];
            const REAL p = f[i * LANES + l] * (REAL)round->scale[l];
            const double lower = here + (double)NAME(log_of_rest)(p, ALL_TERMS);
            const double lowest = fallen > LOWEST ? fallen : LOWEST;
            next[i * LANES + l] = round->top[l] == (double)i ? lowest : lower;
        }
    }
}

/* y of up to LANES rows. Returns how many were refused. */
static int64_t NAME(forward_lanes)(NAME(Group) *group, const REAL *x, int64_t k, const double *tau,
                                   int64_t tau_stride, REAL *y, int64_t rows, int64_t n) {
    NAME(begin_lanes)(group, x, tau, tau_stride, rows, n);
    int64_t refused = 0;
    for (int64_t l = 0; l < rows; l++) {
        const double taub = tau[l * tau_stride];
        refused += !(group->units[l] >= (double)k && taub > 0 && taub < INFINITY);
    }
    if (refused || !y) return refused;
    double *restrict sum = group->sum;
    const REAL *restrict f = group->f;
    memset(sum, 0, (size_t)n * LANES * sizeof *sum);
    for (int64_t j = 0; j < k; j++) {
        const LaneRound *round = group->said;
        NAME(choose_lanes)(group->alpha, group->f, n, group->inv_tau, group->said);
        for (int64_t i = 0; i < n; i++) {
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                const double p = (double)f[i * LANES + l] * round->scale[l];
                sum[i * LANES + l] += round->top[l] == (double)i ? round->p_top[l] : p;
            }
        }
        if (j + 1 < k) NAME(descend_lanes)(group->alpha, group->alpha, f, n, round);
    }
    for (int64_t l = 0; l < rows; l++)
        for (int64_t i = 0; i < n; i++) y[l * n + i] = (REAL)sum[i * LANES + l];
    return 0;
}

/* One round back, as `back` has it; adds to moment if alpha is given. */
static void NAME(back_lanes)(const NAME(Group) *group, const REAL *restrict f,
                             const double *restrict alpha, int64_t n,
                             const LaneRound *restrict round, double *restrict moment) {
    const REAL *restrict g = group->g;
    const double *restrict inv_tau = group->inv_tau;
    double *restrict a = group->sum;
    REAL of_g[LANES], of_a[LANES], g_top[LANES], scale[LANES], shared[LANES], of_top[LANES];
    double a_top[LANES], next_top[LANES], at_top[LANES], here[LANES];
    for (int l = 0; l < LANES; l++) {
        of_g[l] = of_a[l] = g_top[l] = 0;
        a_top[l] = here[l] = 0;
        scale[l] = (REAL)round->scale[l];
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const REAL gi = g[i * LANES + l], p = f[i * LANES + l] * scale[l]; /* 0 of the top */
            const double ai = a[i * LANES + l];
            of_g[l] += p * gi;
            of_a[l] += (REAL)ai * p / (1 - p);
            g_top[l] = round->top[l] == (double)i ? gi : g_top[l];
            a_top[l] = round->top[l] == (double)i ? ai : a_top[l];
        }
    }
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        const double p_top = round->p_top[l], f_sum = round->f_sum[l], h = (double)of_a[l];
        const double mean = (double)of_g[l] + p_top * (double)g_top[l];
        at_top[l] = p_top * ((double)g_top[l] - mean - a_top[l] + h);
        next_top[l] = a_top[l] + at_top[l] * inv_tau[l];
        shared[l] = (REAL)(h - mean);
        of_top[l] = (REAL)(f_sum > 0 ? a_top[l] * p_top / f_sum : 0.0);
    }
    for (int64_t i = 0; i < n; i++) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) {
            const double ai = a[i * LANES + l];
            const REAL fi = f[i * LANES + l], p = fi * scale[l];
            const REAL lambda =
                p * (g[i * LANES + l] + shared[l] - (REAL)ai / (1 - p)) + of_top[l] * fi;
            const double next = ai + (double)lambda * inv_tau[l];
            a[i * LANES + l] = round->top[l] == (double)i ? next_top[l] : next;
            if (!alpha) continue;
            const double far = (alpha[i * LANES + l] - round->second[l]) * inv_tau[l];
            here[l] += fi > 0 ? (double)lambda * far : 0.0;
        }
    }
    for (int l = 0; alpha && l < LANES; l++)
        moment[l] += round->f_sum[l] > 0 ? here[l] - at_top[l] * round->gap[l] : 0.0;
}

/* The cotangents of x and, unless null, of tau, of up to LANES rows. */
static void NAME(pull_back_lanes)(NAME(Group) *group, const REAL *g, const REAL *x, int64_t k,
                                  const double *tau, int64_t tau_stride, REAL *grad_x,
                                  double *grad_tau, int64_t rows, int64_t n) {
    const int64_t entries = n * LANES, stride = grad_tau ? entries : 0;
    double moment[LANES] = {0};
    NAME(begin_lanes)(group, x, tau, tau_stride, rows, n);
    for (int l = 0; l < LANES; l++)
        for (int64_t i = 0; i < n; i++)
            group->g[i * LANES + l] = l < rows ? g[l * n + i] : (REAL)0;
    memset(group->sum, 0, (size_t)entries * sizeof *group->sum);
    for (int64_t j = 0; j < k; j++) {
        const double *alpha = group->alpha + j * stride;
        REAL *f = group->f + j * entries;
        NAME(choose_lanes)(alpha, f, n, group->inv_tau, group->said + j);
        if (j + 1 < k)
            NAME(descend_lanes)(alpha, group->alpha + (j + 1) * stride, f, n, group->said + j);
    }
    for (int64_t j = k - 1; j >= 0; j--)
        NAME(back_lanes)(group, group->f + j * entries,
                         grad_tau ? group->alpha + j * entries : NULL, n, group->said + j, moment);
    for (int64_t l = 0; l < rows; l++) {
        for (int64_t i = 0; i < n; i++)
            grad_x[l * n + i] = x[l * n + i] > (REAL)-INFINITY ? (REAL)group->sum[i * LANES + l]
                                                               : (REAL)0;
        if (grad_tau) grad_tau[l] = -moment[l] * group->inv_tau[l];
    }
}

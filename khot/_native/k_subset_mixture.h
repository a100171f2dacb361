/* The DFT form of the k-subset law, once for each REAL: see khot/_ksubset_mixture.py, whose
 * docstring holds the mathematics. Lanes are units; what a row sums is summed in blocks,
 * always in the same order.
 */

typedef REAL NAME(Lanes) __attribute__((vector_size(32), may_alias));

/* The constants of a node in a sum over 1 / f, for one numerator: Re (y conj f) = a + b p. */
typedef struct {
    REAL d, a, b;
} NAME(Term);

/* y / f summed over the nodes, y given by its terms. */
static void NAME(sum_nodes)(const NAME(Term) *term, int64_t used, const REAL *restrict p,
                            const REAL *restrict v, REAL *restrict out, int64_t padded) {
    for (int64_t i = 0; i < padded; i += LANES) {
        const NAME(Lanes) pi = *(const NAME(Lanes) *)(p + i), vi = *(const NAME(Lanes) *)(v + i);
        NAME(Lanes) sum = {0};
        for (int64_t l = 1; l < used; l++)
            sum += (term[l].a + pi * term[l].b) / (1 - vi * term[l].d);
        *(NAME(Lanes) *)(out + i) = sum;
    }
}

static NAME(Term) NAME(term)(const Node *node, double real, double imaginary) {
    return (NAME(Term)){(REAL)(2 * node->h2), (REAL)real,
                        (REAL)(imaginary * node->sin - real * node->h2)};
}

/* Sum of g v / f over the units, for a node. */
static void NAME(sum_units)(const Node *node, const REAL *restrict p, const REAL *restrict v,
                            const REAL *restrict gv, int64_t padded, double sum[2]) {
    const REAL d = (REAL)(2 * node->h2);
    double zeroth = 0, first = 0;
    for (int64_t start = 0; start < padded; start += BLOCK) {
        const int64_t end = start + BLOCK < padded ? start + BLOCK : padded;
        NAME(Lanes) s0 = {0}, s1 = {0};
        for (int64_t i = start; i < end; i += LANES) {
            const NAME(Lanes) share =
                *(const NAME(Lanes) *)(gv + i) / (1 - *(const NAME(Lanes) *)(v + i) * d);
            s0 += share;
            s1 += share * *(const NAME(Lanes) *)(p + i);
        }
        for (int64_t j = 0; j < LANES; j++) zeroth += s0[j], first += s1[j];
    }
    sum[0] = zeroth - node->h2 * first;
    sum[1] = -node->sin * first;
}

/* J g, from the mixture and the g v of a g that is centred. */
static void NAME(times_covariance)(const Node *node, int64_t used, const REAL *restrict g,
                                   const REAL *restrict p, const REAL *restrict v,
                                   const REAL *restrict gv, REAL *restrict out, int64_t padded) {
    double pull[MOST_NODES][2], mean = 0;
    NAME(Term) others[MOST_NODES];
    REAL own[MOST_NODES][3];
    for (int64_t l = 0; l < used; l++) {
        const Node a = node[l];
        double sum[2];
        NAME(sum_units)(&a, p, v, gv, padded, sum);
        pull[l][0] = -a.h2 * sum[0] - a.sin * sum[1];
        pull[l][1] = a.sin * sum[0] - a.h2 * sum[1];
        mean += a.real * pull[l][0] - a.imaginary * pull[l][1];
        /* y = rho omega, Re (y conj(f)^2) = own[0] + p (own[1] + p own[2]) */
        const double real = a.real * (1 - a.h2) - a.imaginary * a.sin;
        const double imaginary = a.real * a.sin + a.imaginary * (1 - a.h2);
        own[l][0] = (REAL)real;
        own[l][1] = (REAL)(2 * (imaginary * a.sin - real * a.h2));
        own[l][2] = (REAL)(real * (a.h2 * a.h2 - a.sin * a.sin) - 2 * imaginary * a.h2 * a.sin);
    }
    for (int64_t l = 0; l < used; l++) {
        const Node a = node[l];
        const double real = a.step[0] * (pull[l][0] - mean) - a.step[1] * pull[l][1];
        const double imaginary = a.step[0] * pull[l][1] + a.step[1] * (pull[l][0] - mean);
        others[l] = NAME(term)(&a, real, imaginary);
    }
    for (int64_t i = 0; i < padded; i += LANES) {
        const NAME(Lanes) pi = *(const NAME(Lanes) *)(p + i), vi = *(const NAME(Lanes) *)(v + i);
        const NAME(Lanes) gi = *(const NAME(Lanes) *)(g + i);
        NAME(Lanes) sum = gi * own[0][0];
        for (int64_t l = 1; l < used; l++) {
            const NAME(Lanes) inverse = 1 / (1 - vi * others[l].d);
            const NAME(Lanes) square = own[l][0] + pi * (own[l][1] + pi * own[l][2]);
            sum += inverse * (inverse * square * gi + (others[l].a + pi * others[l].b));
        }
        *(NAME(Lanes) *)(out + i) = vi * sum;
    }
}

/* A row where k leaves no choice: every unit or none. Returns its rest, with c = 0. */
static double NAME(no_choice)(const REAL *theta, int64_t n, int all, REAL *mu, REAL *product) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const int in = all && theta[i] > (REAL)-INFINITY;
        sum += in ? fmin((double)theta[i], 0) : -fmax((double)theta[i], 0);
        if (mu) mu[i] = (REAL)in;
        if (product) product[i] = 0;
    }
    return sum;
}

static void NAME(mixture_row)(const REAL *restrict theta, const REAL *restrict g, int64_t n,
                              double k, double c, double *scratch, REAL *mu, REAL *product,
                              double *rest) {
    const int64_t padded = (n + BLOCK_PAD - 1) / BLOCK_PAD * BLOCK_PAD;
    double *restrict exact = scratch;
    REAL *restrict p = (REAL *)(scratch + padded), *restrict v = p + padded;
    REAL *restrict gv = v + padded, *restrict centred = gv + padded;
    REAL *restrict out = centred + padded;
    double total = 0, logs = 0, dot = 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = start + BLOCK < n ? start + BLOCK : n;
        double factor = 1; /* of at most BLOCK factors below 2 */
#pragma omp simd reduction(+ : total) reduction(* : factor)
        for (int64_t i = start; i < end; i++) {
            const double t = (double)theta[i] + c;
            const double e = exp_minus(fabs(t)), r = 1 / (1 + e);
            exact[i] = t > 0 ? r : e * r;
            p[i] = (REAL)exact[i];
            v[i] = (REAL)(e * r * r);
            total += e * r * r;
            factor *= 1 + e;
        }
        logs += log(factor);
    }
    for (int64_t i = n; i < padded; i++) exact[i] = 0, p[i] = 0, v[i] = 0;

    Node node[MOST_NODES];
    const int64_t used = nodes_of_row(exact, padded, n, k, total, NAME(TAIL), node);
    if (rest) *rest = log(node[0].size) + logs;
    if (mu) {
        NAME(Term) term[MOST_NODES];
        for (int64_t l = 1; l < used; l++)
            term[l] = NAME(term)(node + l, node[l].step[0], node[l].step[1]);
        NAME(sum_nodes)(term, used, p, v, out, padded);
        for (int64_t i = 0; i < n; i++) {
            const REAL m = p[i] + v[i] * out[i];
            mu[i] = m < 0 ? 0 : m > 1 ? 1 : m;
        }
    }
    if (!product) return;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; i++) dot += (double)v[i] * (double)g[i];
    const REAL mean = (REAL)(total > 0 ? dot / total : 0);
    for (int64_t i = 0; i < n; i++) {
        centred[i] = g[i] - mean;
        gv[i] = v[i] * centred[i];
    }
    for (int64_t i = n; i < padded; i++) centred[i] = gv[i] = 0;
    NAME(times_covariance)(node, used, centred, p, v, gv, out, padded);
    memcpy(product, out, (size_t)n * sizeof *out);
}

/* mu, J g (product), and log Z less the positive part of theta + c (rest), each unless null. k is a column with a stride,
 * c that of sigmoid top-k, infinite where k leaves no choice. Returns 0 if memory is out. */
KHOT_EXPORT int64_t NAME(khot_k_subset_mixture)(const REAL *theta, const double *k,
                                                int64_t k_stride, const double *c, const REAL *g,
                                                REAL *mu, REAL *product, double *rest,
                                                int64_t rows, int64_t n, int32_t threads) {
    int64_t good = 1;
    (void)threads;
    const int64_t padded = (n + BLOCK_PAD - 1) / BLOCK_PAD * BLOCK_PAD;
    const size_t bytes = (size_t)padded * (sizeof(double) + 5 * sizeof(REAL));
#pragma omp parallel num_threads(threads) reduction(& : good) \
    if (threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS / 2)
    {
        double *scratch = aligned_alloc(64, bytes);
        good = scratch != NULL;
#pragma omp for schedule(static)
        for (int64_t b = 0; b < rows; b++) {
            if (!scratch) continue;
            const double kb = k[b * k_stride];
            REAL *to_mu = mu ? mu + b * n : NULL, *to_product = product ? product + b * n : NULL;
            double *to_rest = rest ? rest + b : NULL;
            if (isfinite(c[b])) {
                NAME(mixture_row)(theta + b * n, g ? g + b * n : NULL, n, kb, c[b], scratch,
                                  to_mu, to_product, to_rest);
            } else {
                const double sum =
                    NAME(no_choice)(theta + b * n, n, c[b] > 0, to_mu, to_product);
                if (to_rest) *to_rest = sum;
            }
        }
        free(scratch);
    }
    return good;
}

/* What is called of renorm_sigmoid_topk.c, once for each REAL. */

/* pi (rows, n). k and tau are columns with a stride, 0 for one entry that serves all rows. Returns
 * how many rows were refused. */
KHOT_EXPORT int64_t NAME(khot_renorm_sigmoid_topk_forward)(const REAL *x, const double *k,
                                                           int64_t k_stride, const double *tau,
                                                           int64_t tau_stride, REAL *pi,
                                                           int64_t rows, int64_t n,
                                                           int32_t threads) {
    int64_t refused = 0;
    const int32_t in_row = threads_in_row(rows, n, threads);
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : refused) \
    if (in_row == 1 && threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const double kb = k[b * k_stride], taub = tau[b * tau_stride];
        refused += !(is_ordinary(taub) ? NAME(forward) : WIDE(forward))(x + b * n, kb, taub,
                                                                        pi + b * n, n, in_row);
    }
    return refused;
}

/* The cotangents of x and, unless null, of k and tau, for the cotangent g of pi. */
KHOT_EXPORT void NAME(khot_renorm_sigmoid_topk_backward)(
    const REAL *g, const REAL *x, const double *k, int64_t k_stride, const double *tau,
    int64_t tau_stride, REAL *grad_x, double *grad_k, double *grad_tau, int64_t rows, int64_t n,
    int32_t threads) {
    const int32_t in_row = threads_in_row(rows, n, threads);
#pragma omp parallel for schedule(static) num_threads(threads) \
    if (in_row == 1 && threads > 1 && rows * n > KHOT_PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < rows; b++) {
        const double kb = k[b * k_stride], taub = tau[b * tau_stride];
        double in_k, in_tau;
        (is_ordinary(taub) ? NAME(backward) : WIDE(backward))(
            g + b * n, x + b * n, kb, taub, grad_x + b * n, &in_k, &in_tau, n, in_row);
        if (grad_k) grad_k[b] = in_k;
        if (grad_tau) grad_tau[b] = in_tau;
    }
}

/* A pass over one row, cut into chunks that threads may share.
 *
 * The cuts depend on the length alone, and what the chunks sum is added in their order:
 * a row has the same bits at any number of threads.
 */
#ifndef KHOT_CHUNKS_H
#define KHOT_CHUNKS_H

#include "kernel.h"

enum { CHUNK = 65536, WAVE = 64 };

/* What a pass finds in a chunk; it uses the fields it needs. */
typedef struct {
    double sum[5], most, least;
    int32_t good;
} Part;

static const Part NO_PART = {.most = -INFINITY, .least = INFINITY, .good = 1};

typedef Part (*Pass)(const void *task, int64_t start, int64_t end);

/* Threads share the rows; but where some would have none, and rows are long, each row. */
static int32_t threads_in_row(int64_t rows, int64_t n, int32_t threads) {
    return rows < threads && n > CHUNK ? threads : 1;
}

static void join(Part *all, const Part *next) {
    for (int i = 0; i < 5; i++) all->sum[i] += next->sum[i];
    all->most = next->most > all->most ? next->most : all->most;
    all->least = next->least < all->least ? next->least : all->least;
    all->good &= next->good;
}

static Part over_row(Pass pass, const void *task, int64_t n, int32_t threads) {
    if (n <= CHUNK) return pass(task, 0, n);
    Part all = NO_PART, parts[WAVE];
    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
    for (int64_t first = 0; first < chunks; first += WAVE) {
        const int64_t count = first + WAVE < chunks ? WAVE : chunks - first;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
        for (int64_t j = 0; j < count; j++) {
            const int64_t start = (first + j) * CHUNK, end = start + CHUNK;
            parts[j] = pass(task, start, end < n ? end : n);
        }
        for (int64_t j = 0; j < count; j++) join(&all, &parts[j]);
    }
    return all;
}

#endif

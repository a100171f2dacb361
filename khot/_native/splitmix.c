/* The seeds of rows: splitmix64 from a mixed seed, as khot/_random.py has it. */
#include "kernel.h"

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* out: for each item in turn, the seeds of its rows first, ..., first + rows - 1; `first` may be
 * null, for 0. */
KHOT_EXPORT void khot_row_seeds_i64(const uint64_t *seeds, const int64_t *rows,
                                    const int64_t *first, int64_t items, uint64_t *out) {
    for (int64_t i = 0; i < items; i++) {
        uint64_t state = mix(seeds[i]) + (first ? (uint64_t)first[i] : 0) * 0x9E3779B97F4A7C15u;
        for (int64_t r = 0; r < rows[i]; r++) *out++ = mix(state += 0x9E3779B97F4A7C15u);
    }
}

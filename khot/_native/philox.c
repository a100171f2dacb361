/* The random numbers of khot/_random.py for its torch operations, to the same bit. */
#include "philox.h"

#define REAL double
#define NAME khot_philox_f64
#define WORDS_EACH 2
#define TAKE(pairs, i) philox_uniform(pairs[i])
#include "philox_rows.h"
#undef REAL
#undef NAME
#undef WORDS_EACH
#undef TAKE

#define REAL int64_t
#define NAME khot_philox_i64
#define WORDS_EACH 1
#define TAKE(pairs, i) (int64_t)(pairs[i / 2] >> 32 * (i % 2) & 0xFFFFFFFFu)
#include "philox_rows.h"
#undef REAL
#undef NAME
#undef WORDS_EACH
#undef TAKE

/* The pivotal method in random order: the algorithm of khot/sampling/pivotal.py, whose docstring
 * holds the rules and their proof, row by row in C and to the same bit.
 *
 * Probabilities are whole multiples of 2^-52, so sums have no rounding; whatever else is computed
 * is one rounded product, and nothing is left for a compiler to contract.
 */
#include "kernel.h"
#include "philox.h"
#include "row_sum.h"

#include <stdlib.h>

static const uint64_t UNIT = (uint64_t)1 << 52, BITS_OF_ONE = (uint64_t)0x3FF << 52;

/* What one row needs, of n + 1 units. */
typedef struct {
    uint64_t *part; /* the probabilities, in units of 2^-52 */
    uint64_t *sum;  /* of what is carried and the newcomer; first, numbers to be summed */
    uint32_t *words, *order;
} Scratch;

/* The order of m units takes a word each, in whole blocks; a fight takes two. */
static int64_t words_of_order(int64_t m) { return (m + 3) / 4 * 4; }

/* In one piece, that of `part`, which is null if there is no memory. */
static Scratch new_scratch(int64_t n) {
    const int64_t m = n + 1, words = philox_room(words_of_order(m) + 2 * m);
    uint64_t *part = malloc((size_t)(20 * m + 4 * words));
    if (!part) return (Scratch){0};
    uint32_t *after = (uint32_t *)(void *)(part + 2 * m);
    return (Scratch){part, part + m, after, after + words};
}

/* In units of 2^-52, to the nearest, for p in [0, 1]. */
static inline uint64_t as_part(double p) {
    const double shifted = p + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return bits - BITS_OF_ONE;
}

/* The number in [0, 1] with these units of 2^-52; exact, also for 1. */
static inline double as_number(uint64_t part) {
    const uint64_t bits = part + BITS_OF_ONE;
    double shifted;
    memcpy(&shifted, &bits, sizeof shifted);
    return shifted - 1.0;
}

/* All ones if the unit that carries goes on carrying, else 0. */
static inline uint64_t stays(uint64_t carried, uint64_t sum, uint64_t pair) {
    const uint64_t heavy = -(sum >> 52), newcomer = sum - carried;
    const uint64_t turned = heavy & (UNIT - sum); /* to 1 - b for a, and 1 - a for b */
    const double first = as_number(carried + turned), both = as_number(sum + 2 * turned);
    const uint64_t won = philox_uniform(pair) * both < first ? ~(uint64_t)0 : 0;
    return (won ^ heavy) | (newcomer == 0 ? ~(uint64_t)0 : 0);
}

/* A random order of m units, as `shuffles` in khot/_random.py has it. */
static void shuffle(const Scratch *s, int64_t m) {
    for (int64_t i = 0; i < m; i++) {
        const uint64_t j = (uint64_t)s->words[i] * (uint64_t)(i + 1) >> 32;
        s->order[i] = s->order[j];
        s->order[j] = (uint32_t)i;
    }
}

/* xoshiro256+, for the benchmark: what does it cost that a row's numbers have no state? */
static void stateful_fill(uint32_t *out, int64_t words, uint64_t s[4]) {
    for (int64_t i = 0; i < words; i += 2) {
        const uint64_t pair = s[0] + s[3], t = s[1] << 17;
        memcpy(out + i, &pair, sizeof pair);
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3] << 45 | s[3] >> 19;
    }
}

#define REAL float
#define NAME(stem) stem##_f32
#include "pivotal_rows.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(stem) stem##_f64
#include "pivotal_rows.h"
#undef REAL
#undef NAME

/* Philox4x32-10: the random words of khot/_random.py, some blocks at a time.
 *
 * A word lies in the lower half of a 64-bit lane. The multiplication reads nothing else, so
 * what lies above may stay there until the end: a round is two multiplications, two shifts and
 * four exclusive ors. Compilers do not find that instruction by themselves.
 */
#ifndef KHOT_PHILOX_H
#define KHOT_PHILOX_H

#include "kernel.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pairs of words are read as one number");

#if defined(__AVX2__)
#include <immintrin.h>
enum { PHILOX_WIDTH = 4 };
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
enum { PHILOX_WIDTH = 2 };
#endif

/* Two vectors at once hide the multiplication's latency; callers leave room for all of it. */
enum { PHILOX_VECTORS = 2, PHILOX_BLOCKS = PHILOX_VECTORS * PHILOX_WIDTH };

typedef uint64_t PhiloxLanes __attribute__((vector_size(8 * PHILOX_WIDTH)));

/* The products of the lower halves. */
static inline PhiloxLanes philox_times(PhiloxLanes a, uint32_t m) {
#if defined(__AVX2__)
    return (PhiloxLanes)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(m));
#elif defined(__SSE2__)
    return (PhiloxLanes)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(m));
#else
    return (a & 0xFFFFFFFFu) * m;
#endif
}

/* How many words to leave room for, if `words` are wanted. */
static inline int64_t philox_room(int64_t words) {
    const int64_t chunk = 4 * PHILOX_BLOCKS;
    return (words + chunk - 1) / chunk * chunk;
}

/* At least `words` words from block `first` on, into an array with room for philox_room of them. */
static void philox_fill_from(uint32_t *out, int64_t first, int64_t words, uint64_t seed,
                             uint32_t sample) {
    const PhiloxLanes zero = {0}, lower = zero + 0xFFFFFFFFu;
    PhiloxLanes lane = zero;
    for (int i = 0; i < PHILOX_WIDTH; i++) lane[i] = (uint64_t)i;
    for (int64_t block = 0; 4 * block < words; block += PHILOX_BLOCKS) {
        PhiloxLanes c0[PHILOX_VECTORS], c1[PHILOX_VECTORS], c2[PHILOX_VECTORS], c3[PHILOX_VECTORS];
        for (int v = 0; v < PHILOX_VECTORS; v++) {
            c0[v] = lane + (uint64_t)(first + block + v * PHILOX_WIDTH);
            c1[v] = zero + sample;
            c2[v] = c3[v] = zero;
        }
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            for (int v = 0; v < PHILOX_VECTORS; v++) {
                const PhiloxLanes p0 = philox_times(c0[v], 0xD2511F53u);
                const PhiloxLanes p1 = philox_times(c2[v], 0xCD9E8D57u);
                c0[v] = (p1 >> 32) ^ c1[v] ^ k0;
                c2[v] = (p0 >> 32) ^ c3[v] ^ k1;
                c1[v] = p1;
                c3[v] = p0;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        for (int v = 0; v < PHILOX_VECTORS; v++) {
            /* pairs of words, the first one lower, as memory has them */
            const PhiloxLanes c01 = (c0[v] & lower) | c1[v] << 32;
            const PhiloxLanes c23 = (c2[v] & lower) | c3[v] << 32;
            for (int i = 0; i < PHILOX_WIDTH; i++) {
                const uint64_t pairs[2] = {c01[i], c23[i]};
                memcpy(out + 4 * (block + v * PHILOX_WIDTH + i), pairs, sizeof pairs);
            }
        }
    }
}

/* From block 0 on. */
static inline void philox_fill(uint32_t *out, int64_t words, uint64_t seed, uint32_t sample) {
    philox_fill_from(out, 0, words, seed, sample);
}

/* Odd multiples of 2^-53 from two words, the first one higher, as khot/_random.py has them. */
static inline double philox_uniform(uint64_t pair) {
    const uint64_t one = (uint64_t)0x3FF << 52;
    const uint64_t bits = one | (pair & 0xFFFFFFFFu) << 20 | pair >> 44;
    double shifted;
    memcpy(&shifted, &bits, sizeof shifted);
    return shifted - (1.0 - 0x1p-53);
}

#endif

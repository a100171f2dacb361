/* The logarithm in double: plain arithmetic, so that a loop over it vectorises. */
#ifndef KHOT_LOG_DOUBLE_H
#define KHOT_LOG_DOUBLE_H

#include <stdint.h>
#include <string.h>

/* log x for normal x > 0, within 2 ulp: x = 2^e m with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 artanh(s), s = (m - 1) / (m + 1), whose odd series converges to the last bit in 11
 * terms; m - 1 is exact. */
static inline double log_of(double x) {
    const uint64_t root_half = 0x3FE6A09E667F3BCDu, one = (uint64_t)0x3FF << 52;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += one - root_half;
    const uint64_t exponent = (uint64_t)0x433 << 52 | bits >> 52; /* 2^52 + 1023 + e */
    const uint64_t mantissa = (bits & (((uint64_t)1 << 52) - 1)) + root_half;
    double e, m;
    memcpy(&e, &exponent, sizeof e);
    memcpy(&m, &mantissa, sizeof m);
    e -= 0x1p52 + 1023;
    const double s = (m - 1) / (m + 1), square = s * s;
    double series = 1.0 / 21;
    series = series * square + 1.0 / 19;
    series = series * square + 1.0 / 17;
    series = series * square + 1.0 / 15;
    series = series * square + 1.0 / 13;
    series = series * square + 1.0 / 11;
    series = series * square + 1.0 / 9;
    series = series * square + 1.0 / 7;
    series = series * square + 1.0 / 5;
    series = series * square + 1.0 / 3;
    series = series * square + 1;
    return e * 0x1.62e42fefa39efp-1 + 2 * s * series;
}

#endif

/* Standard Gumbel noise, -log(-log u), of the uniform numbers u of khot/_random.py. */
#include "philox.h"

/* -log x for normal x > 0, within 2 ulp. Plain arithmetic, so that a loop over it vectorises:
 * x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh(s), s = (m - 1) / (m + 1),
 * whose odd series converges to the last bit in 11 terms; m - 1 is exact. */
static inline double minus_log(double x) {
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
    return -(e * 0x1.62e42fefa39efp-1 + 2 * s * series);
}

#define REAL float
#define NAME khot_gumbel_f32
#include "gumbel_rows.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME khot_gumbel_f64
#include "gumbel_rows.h"
#undef REAL
#undef NAME

/* Shared by all kernels: the export mark and the vectorisable exponential. */
#ifndef KHOT_KERNEL_H
#define KHOT_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define KHOT_EXPORT __attribute__((visibility("default")))

/* Fewer elements than this are done before a second thread would have woken. */
#define KHOT_PARALLEL_ELEMENTS 16384

/* exp(-a) for a >= 0, within 1 ulp; 0 beyond 708, where the result leaves the
 * normal range. Plain arithmetic, so that a loop over it vectorises: exp(-a) =
 * 2^m exp(r) with |r| <= log(2)/2, log 2 taken in two parts (Cody and Waite), and
 * the Taylor series to degree 13 (its next term is below 2^-57). */
static inline double exp_minus(double a) {
    const double round_shift = 0x1.8p52; /* adding it leaves the integer in the low bits */
    const double x = a < 708.0 ? -a : -708.0;
    const double shifted = x * 0x1.71547652b82fep0 + round_shift;
    const double m = shifted - round_shift;
    const double r = (x - m * 0x1.62e42fee00000p-1) - m * 0x1.a39ef35793c76p-33;
    double y = 1.0 / 6227020800.0;
    y = y * r + 1.0 / 479001600.0;
    y = y * r + 1.0 / 39916800.0;
    y = y * r + 1.0 / 3628800.0;
    y = y * r + 1.0 / 362880.0;
    y = y * r + 1.0 / 40320.0;
    y = y * r + 1.0 / 5040.0;
    y = y * r + 1.0 / 720.0;
    y = y * r + 1.0 / 120.0;
    y = y * r + 1.0 / 24.0;
    y = y * r + 1.0 / 6.0;
    y = y * r + 0.5;
    y = y * r + 1.0;
    y = y * r + 1.0;
    uint64_t bits, exponent;
    memcpy(&exponent, &shifted, sizeof exponent);
    memcpy(&bits, &y, sizeof bits);
    bits += exponent << 52;
    memcpy(&y, &bits, sizeof y);
    return a < 708.0 ? y : 0.0;
}

#endif

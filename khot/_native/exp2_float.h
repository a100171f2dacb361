/* The vectorisable power of two in float. */
#ifndef KHOT_EXP2_FLOAT_H
#define KHOT_EXP2_FLOAT_H

#include <stdint.h>
#include <string.h>

/* 2^v for |v| <= 126: 2^m times a polynomial in v - m, m the nearest integer; within 1e-7. */
static inline float exp2_float(float v) {
    const float shifted = v + 0x1.8p23f; /* leaves the integer in the low bits */
    const float f = v - (shifted - 0x1.8p23f);
    float y = 0x1.41fbb8p-13f;
    y = y * f + 0x1.5f3e54p-10f;
    y = y * f + 0x1.3b2d4cp-7f;
    y = y * f + 0x1.c6aee8p-5f;
    y = y * f + 0x1.ebfbdcp-3f;
    y = y * f + 0x1.62e430p-1f;
    y = y * f + 1.0f;
    uint32_t bits, exponent;
    memcpy(&exponent, &shifted, sizeof exponent);
    memcpy(&bits, &y, sizeof bits);
    bits += exponent << 23;
    memcpy(&y, &bits, sizeof y);
    return y;
}

#endif

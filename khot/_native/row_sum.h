/* Sums of a row in the order of `row_sum` in khot/sampling/_draw.py, and whether they are whole. */
#ifndef KHOT_ROW_SUM_H
#define KHOT_ROW_SUM_H

#include "kernel.h"

/* The sum of n numbers, which it destroys. */
static double halved_sum(double *p, int64_t n) {
    while (n > 1) {
        int64_t half = 1;
        while (2 * half < n) half *= 2;
        for (int64_t i = 0; i < n - half; i++) p[i] += p[half + i];
        n = half;
    }
    return p[0];
}

/* Whether a sum is a whole number, up to the rounding of what was summed. */
static int is_whole(double total, double tolerance) {
    const double whole = rint(total), allowed = tolerance * (whole > 1 ? whole : 1);
    return !(fabs(total - whole) > (allowed < 0.25 ? allowed : 0.25));
}

#endif

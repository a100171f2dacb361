/* What the loader asks of the baseline object before it chooses one. */
#include "kernel.h"

KHOT_EXPORT const char *khot_best_variant(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "baseline";
}

KHOT_EXPORT int32_t khot_has_openmp(void) {
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

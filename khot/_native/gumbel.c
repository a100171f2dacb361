/* Standard Gumbel noise, -log(-log u), of the uniform numbers u of khot/_random.py. */
#include "log_double.h"
#include "philox.h"

static inline double minus_log(double x) { return -log_of(x); }

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

/* The k largest of each row, ties going to the lower index.
 *
 * A threshold t with count(x >= t) = k is found by bisection over the floats themselves, taken
 * as the integers that are in the same order. A count is one vectorised pass without branches,
 * and some 20 of them are quicker than a selection that moves units about. If there is none,
 * for lack of a float between ties, the k-th largest is found instead, and of its equals the
 * first ones win. */
#include "kernel.h"

#define REAL float
#define INTEGER int32_t
#define GREATEST INT32_MAX
#define NAME khot_largest_f32
#define COUNT count_f32
#define FLOAT float_f32
#include "largest_rows.h"
#undef REAL
#undef INTEGER
#undef GREATEST
#undef NAME
#undef COUNT
#undef FLOAT

#define REAL double
#define INTEGER int64_t
#define GREATEST INT64_MAX
#define NAME khot_largest_f64
#define COUNT count_f64
#define FLOAT float_f64
#include "largest_rows.h"
#undef REAL
#undef INTEGER
#undef GREATEST
#undef NAME
#undef COUNT
#undef FLOAT

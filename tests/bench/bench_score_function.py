"""The score function estimator, forward and backward, as a multiple of softmax's.

One thread, float32. The two forms of its marginals.
"""

from functools import partial

from estimator_cost import main

import khot

ESTIMATORS = {
    "dft": partial(khot.score_function, form="dft"),
    "dynamic programme": partial(khot.score_function, form="dynamic_programme"),
}
SIZES = ((1, 8, 2), (128, 10, 5), (128, 784, 50))

if __name__ == "__main__":
    about = __doc__.splitlines()[0]
    main("score_function", about, ESTIMATORS, baseline="softmax", sizes=SIZES, rounds=11)

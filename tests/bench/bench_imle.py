"""I-MLE, forward and backward, as a multiple of softmax's.

One thread, float32. Its two noises.
"""

from functools import partial

from estimator_cost import main

import khot

ESTIMATORS = {
    "sum of gamma": partial(khot.imle, noise="sum_of_gamma"),
    "gumbel": partial(khot.imle, noise="gumbel"),
}
SIZES = ((1, 8, 2), (128, 10, 5), (128, 784, 50), (128, 1000, 500))

if __name__ == "__main__":
    about = __doc__.splitlines()[0]
    main("imle", about, ESTIMATORS, baseline="softmax", sizes=SIZES, rounds=11)

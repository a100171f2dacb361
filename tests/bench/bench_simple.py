"""SIMPLE, forward and backward, as a multiple of softmax's.

One thread, float32. Its flavours `f` and `b` beside it.
"""

from functools import partial

from estimator_cost import main

import khot

ESTIMATORS = {
    "simple": khot.simple,
    "f": partial(khot.simple, flavour="f"),
    "b": partial(khot.simple, flavour="b"),
    "pi_st": khot.pi_st,
}
SIZES = ((1, 8, 2), (128, 10, 5), (128, 784, 50), (128, 1000, 500))

if __name__ == "__main__":
    about = __doc__.splitlines()[0]
    main("simple", about, ESTIMATORS, baseline="softmax", sizes=SIZES, rounds=11)

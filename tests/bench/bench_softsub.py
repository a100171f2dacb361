"""SoftSub, relaxed and hard, forward and backward, as a multiple of sigmoid top-k's.

One thread.
"""

from functools import partial

from estimator_cost import main

import khot

SIZES = ((1, 8, 2), (128, 784, 50))

if __name__ == "__main__":
    main(
        "softsub",
        __doc__.splitlines()[0],
        {
            "softsub": khot.softsub,
            "hard": partial(khot.softsub, hard=True),
        },
        sizes=SIZES,
        rounds=3,
    )

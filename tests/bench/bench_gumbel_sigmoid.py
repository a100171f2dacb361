"""Gumbel-sigmoid, relaxed and hard, forward and backward, as a multiple of sigmoid top-k's.

One thread.
"""

from functools import partial

from estimator_cost import main

import khot

if __name__ == "__main__":
    main(
        "gumbel_sigmoid",
        __doc__.splitlines()[0],
        {
            "gumbel_sigmoid": khot.gumbel_sigmoid,
            "hard": partial(khot.gumbel_sigmoid, hard=True),
        },
    )

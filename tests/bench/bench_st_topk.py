"""Straight-through top-k, forward and backward, as a multiple of sigmoid top-k's.

One thread.
"""

from estimator_cost import main

import khot

if __name__ == "__main__":
    main("st_topk", __doc__.splitlines()[0], {"st_topk": khot.st_topk})

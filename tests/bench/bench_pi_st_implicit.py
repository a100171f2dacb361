"""piST with an implicit k, forward and backward, as a multiple of sigmoid top-k's.

One thread.
"""

from estimator_cost import main

import khot

if __name__ == "__main__":
    main("pi_st_implicit", __doc__.splitlines()[0], {"pi_st_implicit": khot.pi_st_implicit})

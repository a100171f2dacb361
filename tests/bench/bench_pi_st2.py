"""The second-order estimator, forward and backward, as a multiple of sigmoid top-k's.

One thread.
"""

from estimator_cost import main

import khot

if __name__ == "__main__":
    main("pi_st2", __doc__.splitlines()[0], {"pi_st2": khot.pi_st2, "pi_st": khot.pi_st})

"""NCPSS, forward and backward, as a multiple of sigmoid top-k's.

One thread.
"""

from estimator_cost import main

import khot

if __name__ == "__main__":
    main("ncpss", __doc__.splitlines()[0], {"ncpss": khot.ncpss})

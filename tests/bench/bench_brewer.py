"""Brewer's method, as a multiple of Pareto sampling in plain torch operations.

One thread.
"""

import designs

if __name__ == "__main__":
    designs.main("brewer", __doc__, rounds=3)

"""ReinMax, forward and backward, as a multiple of sigmoid top-k's.

One thread.
"""

from typing import Any

from estimator_cost import main
from torch import Tensor

import khot

SIZES = ((1, 8, 1), (128, 784, 1), (64, 10_000, 1))


def reinmax(logits: Tensor, _k: int, **options: Any) -> Tensor:
    """The only k it takes is 1, whatever sigmoid top-k has."""
    return khot.reinmax(logits, 1, **options)


if __name__ == "__main__":
    main("reinmax", __doc__.splitlines()[0], {"reinmax": reinmax}, sizes=SIZES)

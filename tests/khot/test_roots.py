import numpy as np
import pytest
import torch

import khot
from khot.training import Roots
from khot.training.roots import powers_of


@pytest.mark.parametrize(
    ("residual", "power"),
    [(0.0, -16), (1e-20, -16), (1e-16, -16), (1.1e-16, -15), (1e-7, -7), (1.01e-7, -6), (0.5, 0)]
    + [(1.0, 0), (3.0, 1)]
    + [(10.0**power, power) for power in range(-16, 3)],
)
def test_the_power_is_the_least_that_is_not_below(residual, power):
    assert powers_of(np.array([residual])).tolist() == [power]


def test_rows_are_counted_by_how_they_were_solved():
    _, solved = khot.sigmoid_topk_with_diagnostics(torch.randn(7, 3, 50), 4)
    roots = Roots()
    assert not roots
    roots.add(solved)
    roots.add(solved)
    assert roots and sum(roots.iterations.values()) == sum(roots.residuals.values()) == 42
    assert roots.iterations[int(solved.iterations[0, 0])] >= 2
    assert max(roots.residuals) <= -6 and roots.fallback == roots.nonconverged == 0
    hard = khot.Diagnostics(
        c=torch.zeros(2),
        iterations=torch.tensor([90, 3]),
        residual=torch.tensor([2e-5, 1e-5], dtype=torch.float64),
        fallback=torch.tensor([True, False]),
    )
    roots.add(hard)
    assert (roots.fallback, roots.nonconverged) == (1, 1)

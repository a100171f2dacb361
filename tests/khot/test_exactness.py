"""Which designs have the inclusion probabilities they are given: two laws, many draws."""

import pytest
import torch

import khot
from khot import testing

SCORES = torch.linspace(-4, 4, 10).double()
LAWS = {
    "skewed": khot.sigmoid_topk(SCORES, 5),
    "small d": khot.sigmoid_topk(3 * SCORES, 5),  # hardly any freedom
}
CHUNK = 100_000
CHUNKS = 4  # so many show the least bias there is, that of adjusted_pareto, in both laws
DESIGNS = {row.name: row for row in khot.operators("design")}
EXACT = [name for name, row in DESIGNS.items() if row.exact]


def deviation(name: str, pi: torch.Tensor, chunks: int) -> float:
    """The greatest deviation of the frequencies from pi, in standard errors."""
    ones = torch.zeros_like(pi)
    for seed in khot.row_seeds(0, chunks):
        ones += DESIGNS[name].function(pi, num_samples=CHUNK, seeds=seed).sum(0)
    draws = chunks * CHUNK
    return float(((ones / draws - pi) / (pi * (1 - pi) / draws).sqrt()).abs().max())


def test_the_laws_are_what_they_are_called():
    d = [float((pi * (1 - pi)).sum()) for pi in LAWS.values()]
    assert d == pytest.approx([1.10, 0.368], abs=5e-3)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", EXACT)
def test_exact_designs_are_within_five_standard_errors(name, law):
    assert deviation(name, LAWS[law], CHUNKS) < 5


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ["gumbel_topk", "pareto", "iterated_poisson", "topk"])
def test_the_same_test_shows_that_others_are_not_exact(name, law):
    assert not DESIGNS[name].exact
    assert deviation(name, LAWS[law], 1) > 5


def test_the_adjustment_brings_pareto_nearer_but_not_there():
    plain, adjusted = (
        deviation(name, LAWS["small d"], CHUNKS) for name in ("pareto", "adjusted_pareto")
    )
    assert 5 < adjusted < plain / 3
    assert deviation("adjusted_pareto", LAWS["skewed"], CHUNKS) > 5


def test_check_inclusion_says_so_too():
    with pytest.raises(AssertionError, match="is off by .* standard errors"):
        testing.check_inclusion(khot.gumbel_topk, LAWS["skewed"])

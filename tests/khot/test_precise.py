"""The dtype in which probabilities of many units keep their sum."""

import pytest
import torch

import khot
from khot.sampling import precise


@pytest.mark.parametrize(
    ("dtype", "units", "wanted"),
    [
        (torch.float16, 784, torch.float32),
        (torch.bfloat16, 784, torch.float32),
        (torch.float32, 2**19, torch.float32),
        (torch.float32, 2**19 + 1, torch.float64),
        (torch.float16, 2**19 + 1, torch.float64),
        (torch.float64, 784, torch.float64),
    ],
)
def test_half_types_become_float32_and_many_units_float64(dtype, units, wanted):
    scores = torch.zeros(units, dtype=dtype)
    assert precise(scores).dtype == wanted
    assert precise(scores.unsqueeze(-1), dim=0).dtype == wanted


def test_what_is_precise_is_left_alone():
    scores = torch.randn(3, 5)
    assert precise(scores) is scores


def test_it_is_what_a_design_does_to_logits():
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(0)).half()
    seeds, pi = khot.row_seeds(0, 4), khot.sigmoid_topk(precise(logits), 7)
    drawn = khot.pivotal(logits, 7, seeds=seeds)
    assert torch.equal(khot.pivotal(pi, seeds=seeds).half(), drawn)


@pytest.mark.parametrize(
    ("scores", "options", "error", "message"),
    [
        ([1.0], {}, TypeError, "scores must be a torch.Tensor; got list"),
        (torch.arange(3), {}, TypeError, "scores must be one of .*; got int64"),
        (torch.zeros(3), {"dim": 1}, ValueError, r"dim must be in \[-1, 0\] .*; got 1"),
    ],
)
def test_refusals(scores, options, error, message):
    with pytest.raises(error, match=f"^precise: {message}"):
        precise(scores, **options)

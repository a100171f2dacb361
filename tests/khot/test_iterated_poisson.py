"""Iterated Poisson sampling: one round is Poisson, and more of them fill up to k."""

import pytest
import torch

import khot

DRAWS = 100_000


def test_one_round_is_poisson_sampling():
    pi = torch.tensor([0.9, 0.05, 0.8, 0.15, 0.1], dtype=torch.float64)
    z = khot.iterated_poisson(pi, num_samples=DRAWS, rounds=1, seeds=torch.tensor(0))
    assert bool(((z.mean(0) - pi).abs() < 5 * (pi * (1 - pi) / DRAWS).sqrt()).all())
    pairs = pi * pi.unsqueeze(-1)  # independent
    errors = (pairs * (1 - pairs) / DRAWS).sqrt()
    off = ~torch.eye(5, dtype=torch.bool)
    assert bool(((z.T @ z / DRAWS - pairs).abs() < 5 * errors)[off].all())


def test_rounds_only_add_and_rarely_leave_any_missing():
    pi = khot.sigmoid_topk(torch.linspace(-3, 3, 40).double(), 12)
    options = {"num_samples": 2000, "seeds": torch.tensor(0)}
    before = khot.iterated_poisson(pi, rounds=1, **options)
    missing = [float((before.sum(-1) < 12).double().mean())]
    for rounds in (2, 4, 10):
        z = khot.iterated_poisson(pi, rounds=rounds, **options)
        assert bool((z >= before).all())
        enough = before.sum(-1) >= 12
        assert torch.equal(z[enough], before[enough])
        before = z
        missing.append(float((z.sum(-1) < 12).double().mean()))
    assert missing == sorted(missing, reverse=True) and missing[0] > 0.3 and missing[-1] < 0.05
    assert float((before.sum(-1) > 12).double().mean()) > 0.3  # k is not guaranteed


def test_units_at_0_are_not_drawn_to_fill_up():
    pi = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.0, 0.0], dtype=torch.float64)
    z = khot.iterated_poisson(pi, num_samples=5000, seeds=torch.tensor(0))
    assert bool((z[:, 4:] == 0).all())


@pytest.mark.parametrize(
    ("rounds", "error", "message"),
    [(0, ValueError, "at least 1; got 0"), (1.5, TypeError, "an integer; got float")],
)
def test_refusals(rounds, error, message):
    with pytest.raises(error, match=f"^iterated_poisson: rounds must be {message}"):
        khot.iterated_poisson(torch.tensor([0.5, 0.5]), rounds=rounds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("shape", "k"), [((64, 784), 50), ((300, 10), 5), ((8, 1001), 700)])
def test_the_kernel_draws_what_torch_operations_draw(monkeypatch, shape, k, dtype):
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(shape, generator=generator, dtype=dtype)
    pi, seeds = khot.renorm_sigmoid_topk(scores, k), khot.row_seeds(3, shape[0])

    def drawn():
        return khot.iterated_poisson(pi, num_samples=2, seeds=seeds)

    z = drawn()
    monkeypatch.setattr("khot._native.library._library.object", None)
    assert torch.equal(z, drawn())

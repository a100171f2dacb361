"""SIMPLE's Figures 1 and 3: how far each estimator is from the exact gradient.

Ten units, k = 5 (Figure 1) and k = 1 (Figure 3), theta and b from N(0, I), and the loss
E ||z - b||^2 under the k-subset law of theta, whose gradient is known by enumeration. All is
measured by cosines, as there: `bias` is the cosine distance of the mean gradient to the exact one,
`variance` that of the cosines of single gradients with their mean, `error` the mean cosine
distance of single gradients to the exact one, `spread` its standard deviation; then all of it is
averaged over the instances, with the standard error of the bias and of the error beside it. What
is unbiased still shows the noise of the mean of so many draws.

Estimators of another law are not made for this gradient. `own bias` is the bias against the
gradient of E ||z - b||^2 under the law that the estimator draws from, where its inclusion
probabilities are known.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import estimator_bars
import harness
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

import khot
from khot import testing

N = 10
# I-MLE's lambda and SoftSub's temperature are those of SIMPLE's authors.
VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "simple": {
        "SIMPLE": {},
        "SIMPLE-F": {"flavour": "f", "strength": 2.5},
        "SIMPLE-B": {"flavour": "b"},
    },
    "imle": {"I-MLE": {"strength": 2.5}, "I-MLE Gumbel": {"strength": 2.5, "noise": "gumbel"}},
    "softsub": {"SoftSub": {"tau": 2.0}, "SoftSub hard": {"tau": 2.0, "hard": True}},
    "score_function": {"SFE": {}, "SFE with baseline": {"baseline": True}},
    "gumbel_sigmoid": {"gumbel_sigmoid": {}, "gumbel_sigmoid hard": {"hard": True}},
}
OF_THE_PAPER = ("exact", "SIMPLE", "SIMPLE-F", "SIMPLE-B", "I-MLE", "SoftSub", "SFE")
COLUMNS = ("bias", "bias_se", "variance", "error", "error_se", "spread", "own bias")


class Instances(NamedTuple):
    """Laws and losses, a row for each: |z - b|^2 = <1 - 2 b, z> + |b|^2 for zeros and ones."""

    theta: Tensor
    b: Tensor
    k: int

    def exact(self) -> tuple[Tensor, Tensor]:
        """The gradients of the expected loss under the k-subset law, and that loss."""
        z = testing.subsets(N, self.k)
        p = (self.theta @ z.T).softmax(-1)
        losses = (z - self.b.unsqueeze(1)).square().sum(-1)
        expected = (p * losses).sum(-1, keepdim=True)
        return (p * losses) @ z - expected * (p @ z), expected

    def under_sigmoid_topk(self) -> Tensor:
        """The gradients under any law with inclusion probabilities sigmoid_topk(theta, k)."""
        theta = self.theta.clone().requires_grad_()
        loss = khot.sigmoid_topk(theta, self.k) * (1 - 2 * self.b)
        return torch.autograd.grad(loss.sum(), theta)[0]


def main() -> None:
    options = harness.arguments(__doc__.splitlines()[0], picture="write the picture, an SVG")
    torch.set_num_threads(1)
    instances, draws = (2, 50) if options.smoke else (20, 10_000)
    rows = [row for k in (5, 1) for row in measure(k, instances, draws)]
    shown = [{key: f"{v:.4f}" if isinstance(v, float) else v for key, v in r.items()} for r in rows]
    harness.report("estimators", shown, options.out)
    if options.picture:
        options.picture.write_text(estimator_bars.svg(rows, instances, draws))


def measure(k: int, instances: int, draws: int) -> list[dict[str, object]]:
    """A row for each estimator that takes this k: the averages over random instances."""
    generator = torch.Generator().manual_seed(k)
    theta, b = torch.randn(2, instances, N, generator=generator, dtype=torch.float64)
    given = Instances(theta, b, k)
    rows: list[dict[str, object]] = [{"k": k, "estimator": "exact"} | dict.fromkeys(COLUMNS, 0.0)]
    for row in khot.operators("estimator"):
        if row.only_k not in (None, k):
            continue
        for name, options in VARIANTS.get(row.name, {row.name: {}}).items():
            seeds = khot.row_seeds(0, instances * draws).reshape(instances, draws)
            parts = [gradients(row, options, given, part) for part in seeds.split(500, 1)]
            found = torch.cat(parts, 1)
            rows.append({"k": k, "estimator": name} | distances(row, given, found))
    places = {name: place for place, name in enumerate(OF_THE_PAPER)}
    rows.sort(key=lambda row: places.get(str(row["estimator"]), len(places)))
    return [row | {"instances": instances, "draws": draws} for row in rows]


def gradients(
    row: khot.Estimator, options: Mapping[str, Any], given: Instances, seeds: Tensor
) -> Tensor:
    """The gradient of each draw for each instance, (instances, draws, n), by its seed."""
    options = dict(options)
    baseline = given.exact()[1] if options.pop("baseline", False) else None
    theta = given.theta.unsqueeze(1).repeat(1, seeds.shape[1], 1).requires_grad_()
    z = row.function(theta, given.k, seeds=seeds, **options)
    used = z.detach() if row.needs_loss else z
    losses = (used - given.b.unsqueeze(1)).square().sum(-1)
    if row.needs_loss:
        losses = khot.with_losses(z, losses, baseline=baseline)
    return torch.autograd.grad(losses.sum(), theta)[0]


def distances(row: khot.Estimator, given: Instances, found: Tensor) -> dict[str, object]:
    exact, mean = given.exact()[0], found.mean(1)
    bias = 1 - cosine_similarity(mean, exact)
    cosines = cosine_similarity(found, exact.unsqueeze(1), dim=-1)
    error = 1 - cosines.mean(1)
    own = own_gradient(row, given)
    root = len(exact) ** 0.5
    values = {
        "bias": bias.mean(),
        "bias_se": bias.std() / root,
        "variance": cosine_similarity(found, mean.unsqueeze(1), dim=-1).var(1).mean(),
        "error": error.mean(),
        "error_se": error.std() / root,
        "spread": cosines.std(1).mean(),
    }
    shown: dict[str, object] = {name: float(value) for name, value in values.items()}
    return shown | {
        "own bias": "-" if own is None else float((1 - cosine_similarity(mean, own)).mean())
    }


def own_gradient(row: khot.Estimator, given: Instances) -> Tensor | None:
    """Under the law that the estimator draws from, if its inclusion probabilities are known."""
    if row.law == "conditional_poisson" or row.only_k == 1:  # which is softmax, the same law
        return given.exact()[0]
    if row.hard and khot.operator(row.law).exact:
        return given.under_sigmoid_topk()
    return None


if __name__ == "__main__":
    main()

"""The discrete VAEs of the SIMPLE paper, its Figure 4: as Markdown, and drawn. No server.

Twenty vectors of n = 20. With k = 10, SIMPLE trained with the exact divergence and with that of
softmax, beside I-MLE; with k = 1, where both divergences are the same, SIMPLE beside
straight-through Gumbel-softmax.

The figure has the ELBO. So that those of all are of the same kind, each is told for codes drawn by
the k-subset law of the logits, which is SIMPLE's own, and a bound whatever was trained with.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from khot_client.jobs import Job
from khot_client.reproduce import picture, vae_curves
from khot_client.reproduce.ledger import Row, number
from khot_client.reproduce.loss_table import by_dataset, markdown, spread
from khot_client.reproduce.published import Reported
from khot_client.reproduce.vae_curves import Curve, in_nats, listed, mean
from khot_client.specs import Result, VaeResult

# What the figure shows: the first methods are to be below each of the second. By the ELBO, whose
# curves it has; and by the loss of training, among those that are trained with the same.
ELBO, LOSS = "minus the ELBO", "the loss"
ORDERS = {
    (10, ELBO): (("simple_exact",), ("simple", "imle", "imle_gumbel")),
    (10, LOSS): (("simple",), ("imle", "imle_gumbel")),
    (1, LOSS): (("simple_1",), ("st_gumbel_softmax_1", "st_gumbel_softmax_1_cold")),
}
NAMES = {
    "simple_exact": "SIMPLE, exact ELBO",
    "simple": "SIMPLE, softmax KL",
    "imle": "I-MLE, sum-of-gamma noise, softmax KL",
    "imle_gumbel": "I-MLE, Gumbel noise, softmax KL",
    "simple_1": "SIMPLE",
    "st_gumbel_softmax_1": "ST Gumbel-softmax, tau = 1",
    "st_gumbel_softmax_1_cold": "ST Gumbel-softmax, tau = 0.1",
}
MEASURED = (*vae_curves.MEASURED, "elbo_every_fifth")
METHODS = tuple(NAMES)
HEADER = (
    *("method", "ELBO", "seeds", "test loss", "reconstruction", "prior"),
    *("epochs", "seconds an epoch"),
)


def measured(result: Result, job: Job) -> dict[str, object]:
    """What is kept of one: beside what any VAE has, the ELBO that all have."""
    assert isinstance(result, VaeResult)
    name = "elbo" if "elbo" in result.test else "subset_elbo"
    curve = job.metrics(f"validation_{name}")[f"validation_{name}"].values
    return {
        **vae_curves.measured(result, job),
        "test_elbo": result.test[name],
        "elbo_every_fifth": vae_curves.every_fifth(curve),
    }


def table(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported]) -> str:
    """For each data set and k, the ELBOs and losses, and whether they are in the figure's order."""
    parts = []
    for dataset, its in by_dataset(rows):
        for k, part in _by_k(its):
            lines = [_line(name, part) for name in _there(part)]
            parts.append(f"## {dataset}, k = {k}\n\n{markdown(HEADER, lines)}")
            parts += [_order(by, groups, part) for (of, by), groups in ORDERS.items() if of == k]
    said = (
        "The paper shows curves of the ELBO and no numbers. The ELBO here is that of codes drawn\n"
        "by the k-subset law of logits / tau, whatever was trained with: a bound for each method.\n"
        "A loss is what was trained with, the sum of reconstruction and prior: of the exact\n"
        "divergence of the codes, or of softmax's, which is smaller: they compare where that is\n"
        "the same. At k = 1 both are, and the loss is minus the ELBO of the codes' own law.\n\n"
        "I-MLE's sum-of-gamma noise has a tenth of the variance of Gumbel noise at k = 10. So at\n"
        "the same logits its codes are less random, which the divergence of softmax does not see:\n"
        "its loss can be low where the bound by the k-subset law is not."
    )
    return "\n\n".join([*filter(None, parts), said])


def _line(method: str, rows: Sequence[Row]) -> tuple[str, ...]:
    its = [row for row in rows if row["method"] == method]
    loss, bound = (spread(its, method, name) for name in ("test_loss", "test_elbo"))
    assert loss is not None and bound is not None
    return (
        f"{NAMES[method]} (`{method}`)",
        in_nats(bound),
        str(loss.count),
        in_nats(loss),
        *(f"{fmean(number(row, f'test_{n}') for row in its):.2f}" for n in HEADER[4:6]),
        str(max(int(row["epochs_run"]) for row in its)),
        f"{fmean(number(row, 'seconds') / int(row['epochs_run']) for row in its):.1f}",
    )


def _order(by: str, groups: tuple[Sequence[str], Sequence[str]], rows: Sequence[Row]) -> str:
    """Whether every method that the figure has lower is lower here."""
    column, sign = ("test_elbo", -1) if by == ELBO else ("test_loss", 1)
    found = {name: sign * one.mean for name in _there(rows) if (one := spread(rows, name, column))}
    lower, upper = ([name for name in group if name in found] for group in groups)
    if not lower or not upper:
        return ""
    above = [
        f"`{low}` is not below `{high}`"
        for low in lower
        for high in upper
        if found[low] >= found[high]
    ]
    verdict = f"no; {', '.join(above)}" if above else f"yes, {listed(lower)} below {listed(upper)}"
    return f"The order of the figure by {by}: {verdict}."


def _by_k(rows: Sequence[Row]) -> list[tuple[int, list[Row]]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(json.loads(row["settings"])["k"], []).append(row)
    return sorted(found.items(), reverse=True)


def _there(rows: Sequence[Row]) -> list[str]:
    names = {row["method"] for row in rows}
    return [name for name in METHODS if name in names]


def draw(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported], path: Path) -> None:
    """Panels of each data set and k: what the methods have as they learn, by each order.

    Raises:
        BadSettings: matplotlib is missing.
    """
    parts = [
        (f"{dataset}, k = {k}", by, part, names)
        for dataset, its in by_dataset(rows)
        for k, part in _by_k(its)
        for (of, by), (lower, upper) in ORDERS.items()
        if of == k and (names := [name for name in _there(part) if name in (*lower, *upper)])
    ]
    with picture.panels(path, len(parts)) as axes:
        for axis, (title, by, part, names) in zip(axes, parts, strict=True):
            for name in names:
                seen = _curve([row for row in part if row["method"] == name], by)
                colour = picture.COLOURS[METHODS.index(name)]
                axis.plot(list(seen), list(seen.values()), "-", color=colour, label=NAMES[name])
            axis.set_title(title)
            axis.set_xlabel("epoch")
            axis.set_ylabel(f"{by} on validation rows, nats")
            axis.legend(frameon=False, fontsize="small")


def _curve(rows: Sequence[Row], by: str) -> Curve:
    if by == LOSS:
        return mean(rows)
    return {epoch: -value for epoch, value in mean(rows, "elbo_every_fifth").items()}

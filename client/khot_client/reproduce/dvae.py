"""The discrete VAEs of the SIMPLE paper, its Figure 4: as Markdown, and drawn. No server.

Twenty vectors of n = 20. With k = 10, SIMPLE trained with the exact divergence and with that of
softmax, beside I-MLE; with k = 1, where both divergences are the same, SIMPLE beside
straight-through Gumbel-softmax.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from khot_client.reproduce import picture
from khot_client.reproduce.ledger import Row, number
from khot_client.reproduce.loss_table import by_dataset, markdown, spread
from khot_client.reproduce.published import Reported
from khot_client.reproduce.vae_curves import in_nats, mean

# What the figure shows, from the least loss to the greatest; rows of one line may be in any order.
ORDER = {
    10: (("simple_exact", "simple"), ("imle", "imle_gumbel")),
    1: (("simple_1",), ("st_gumbel_softmax_1",)),
}
METHODS = tuple(name for groups in ORDER.values() for group in groups for name in group)
NAMES = {
    "simple_exact": "SIMPLE, exact ELBO",
    "simple": "SIMPLE, softmax KL",
    "imle": "I-MLE, sum-of-gamma noise, softmax KL",
    "imle_gumbel": "I-MLE, Gumbel noise, softmax KL",
    "simple_1": "SIMPLE",
    "st_gumbel_softmax_1": "ST Gumbel-softmax",
}
HEADER = (
    *("method", "test loss", "seeds", "reconstruction", "prior", "ELBO"),
    *("epochs", "seconds an epoch"),
)


def table(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported]) -> str:
    """For each data set and k, the losses, and whether they are in the order of the figure."""
    parts = []
    for dataset, its in by_dataset(rows):
        for k, part in _by_k(its):
            lines = [_line(name, part) for name in _there(part)]
            title = f"## {dataset}, k = {k}"
            parts += [f"{title}\n\n{markdown(HEADER, lines)}", _order(k, part)]
    said = (
        "The paper shows curves and no numbers. A loss is the sum of reconstruction and prior,\n"
        "each with its own prior's term: that of the exact ELBO is a divergence of the codes,\n"
        "that of softmax is another, smaller number. The ELBO is that of the exact divergence,\n"
        "whatever was trained with, where the codes are drawn from the k-subset law."
    )
    return "\n\n".join([*filter(None, parts), said])


def _line(method: str, rows: Sequence[Row]) -> tuple[str, ...]:
    its = [row for row in rows if row["method"] == method]
    loss, bound = (spread(its, method, name) for name in ("test_loss", "test_elbo"))
    assert loss is not None
    return (
        f"{NAMES[method]} (`{method}`)",
        in_nats(loss),
        str(loss.count),
        *(f"{fmean(number(row, f'test_{n}') for row in its):.2f}" for n in HEADER[3:5]),
        in_nats(bound) if bound else "",
        str(max(int(row["epochs_run"]) for row in its)),
        f"{fmean(number(row, 'seconds') / int(row['epochs_run']) for row in its):.1f}",
    )


def _order(k: int, rows: Sequence[Row]) -> str:
    """Whether every method that the figure has lower is lower here."""
    found = {name: spread(rows, name, "test_loss") for name in _there(rows)}
    groups = [[n for n in group if n in found] for group in ORDER.get(k, ())]
    if len(groups) < 2 or not all(groups):
        return ""
    above = [
        f"`{low}` is not below `{high}`"
        for low in groups[0]
        for high in groups[1]
        if (a := found[low]) and (b := found[high]) and a.mean >= b.mean
    ]
    if above:
        return f"The order of the figure: no; {', '.join(above)}."
    return "The order of the figure: yes."


def _by_k(rows: Sequence[Row]) -> list[tuple[int, list[Row]]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(json.loads(row["settings"])["k"], []).append(row)
    return sorted(found.items(), reverse=True)


def _there(rows: Sequence[Row]) -> list[str]:
    names = {row["method"] for row in rows}
    return [name for name in METHODS if name in names]


def draw(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported], path: Path) -> None:
    """A panel for each data set and k: the loss of every method as it learns.

    Raises:
        BadSettings: matplotlib is missing.
    """
    parts = [(d, k, part) for d, its in by_dataset(rows) for k, part in _by_k(its)]
    with picture.panels(path, len(parts)) as axes:
        for axis, (dataset, k, part) in zip(axes, parts, strict=True):
            for colour, name in zip(picture.COLOURS, _there(part), strict=False):
                seen = mean([row for row in part if row["method"] == name])
                axis.plot(list(seen), list(seen.values()), "-", color=colour, label=NAMES[name])
            axis.set_title(f"{dataset}, k = {k}")
            axis.set_xlabel("epoch")
            axis.set_ylabel("validation loss, nats")
            axis.legend(frameon=False, fontsize="small")

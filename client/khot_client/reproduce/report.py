"""The Markdown page of an experiment, made of its rows alone."""

import json
from collections.abc import Sequence

from khot_client.reproduce.experiments import Experiment
from khot_client.reproduce.ledger import Row, latest
from khot_client.reproduce.loss_table import markdown
from khot_client.reproduce.plans import Choice
from khot_client.reproduce.runs import without

# What every method has in common is said once, and these are in the table already.
_TOLD = ("dataset", "estimator", "seed")
OWN_TITLE = "The equation of a field, found by sparse regression"


def page(experiment: Experiment, rows: Sequence[Row], name: str, *, quick: bool) -> str:
    """All of it; `name` is that of its files."""
    kept = latest(rows, experiment.varied)
    parts = [
        f"# {OWN_TITLE if _own(experiment, kept) else experiment.title}",
        f"{'Of --quick: not the experiment, and no number of it. ' if quick else ''}"
        f"Made by `{command(experiment, kept, quick=quick)}` of [{name}.csv]({name}.csv), "
        f"with {_versions(kept)}.",
        experiment.table(kept, experiment.reported),
        f"![the same as a picture]({name}.png)",
        *_settings(kept, experiment.varied),
    ]
    if experiment.selected_in and not quick:
        search = f"{experiment.selected_in}_search"
        parts.append(
            f"Of these, what [{search}]({search}.md) lists was chosen there, by the loss on "
            "validation rows, with the trials that it tells."
        )
    if experiment.unknown:
        parts += ["## What the paper does not say", experiment.unknown]
    if left_out := len(rows) - len(kept):
        parts.append(f"{left_out} rows of the CSV are of earlier settings, and in no table.")
    return "\n\n".join(parts) + "\n"


def command(experiment: Experiment, rows: Sequence[Row], *, quick: bool) -> str:
    """The command that makes these rows."""
    usual = experiment.quick if quick else experiment.whole
    there = Choice(
        _ordered((row["dataset"] for row in rows), usual.datasets),
        _ordered((row["method"] for row in rows), usual.methods),
        tuple(sorted({int(row["seed"]) for row in rows})),
    )
    words = [f"khot reproduce {experiment.name}", *(["--quick"] if quick else [])]
    own = _own(experiment, rows)
    if own:  # files, by their names and contents
        words.append(f"--field {own[-1].rpartition('-')[0]}.npz")
        words.append(f"--terms {json.loads(rows[-1]['settings'])['k']}")
    for name in ("methods", "seeds") if own else ("datasets", "methods", "seeds"):
        if getattr(there, name) != getattr(usual, name):
            words.append(f"--{name} {_listed(getattr(there, name))}")
    return " ".join(words)


def _own(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Data sets that are the user's."""
    known = {*experiment.whole.datasets, *experiment.quick.datasets}
    return [name for name in dict.fromkeys(row["dataset"] for row in rows) if name not in known]


def _ordered(names: object, usual: Sequence[str]) -> tuple[str, ...]:
    there = dict.fromkeys(names)  # type: ignore[call-overload]
    return (*(n for n in usual if n in there), *(n for n in there if n not in usual))


def _listed(values: Sequence[object]) -> str:
    """Names or numbers, as the option takes them: a lone number stands for all below it."""
    if values == tuple(range(len(values))):
        return str(len(values))
    lone = len(values) == 1 and isinstance(values[0], int)
    return ",".join(map(str, values)) + ("," if lone else "")


def _versions(rows: Sequence[Row]) -> str:
    said = [
        ", ".join(f"{name} {row[name]}" for name in ("khot", "torch", "commit") if row[name])
        for row in rows
    ]
    return "; ".join(dict.fromkeys(said))


def _settings(rows: Sequence[Row], varied: Sequence[str]) -> list[str]:
    """What all runs have in common, and a table of the rest."""
    found = {
        (row["dataset"], row["method"]): json.loads(without(row["settings"], {*varied, *_TOLD}))
        for row in rows
    }
    names = list(dict.fromkeys(name for settings in found.values() for name in settings))
    values = {name: [settings.get(name) for settings in found.values()] for name in names}
    shared = [n for n in names if all(v == values[n][0] for v in values[n])]
    rest = [name for name in names if name not in shared]
    said = ", ".join(f"`{name}` {json.dumps(values[name][0])}" for name in shared)
    parts = ["## Settings", f"Of all: {said}."]
    if rest:
        lines = [
            [*key, *(_cell(settings.get(name)) for name in rest)] for key, settings in found.items()
        ]
        parts.append(markdown(["data set", "method", *rest], lines))
    return parts


def _cell(value: object) -> str:
    return "" if value is None else json.dumps(value)

"""The terms of an equation, found in a field: as Markdown, and drawn. No server.

The SIMPLE paper finds the Kuramoto-Sivashinsky equation v_t = -v_xx - v_xxxx - v v_x again: three
terms out of many are chosen, and their coefficients solved for.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from khot_client.reproduce import picture
from khot_client.reproduce.ledger import Row, number
from khot_client.reproduce.loss_table import Spread, by_dataset, markdown
from khot_client.reproduce.published import Reported
from khot_client.specs import SparseRegressionResult

DATASET = "kuramoto-sivashinsky"
TRUTH = {"v_xx": -1.0, "v_xxxx": -1.0, "v*v_x": -1.0}
TERMS = len(TRUTH)
MEASURED = ("found", "equation", "names", "coefficients", "test_rmse", "validation_loss")


def measured(result: SparseRegressionResult) -> dict[str, object]:
    """What is kept of a result; `found` is 1 if it has the terms of TRUTH and no other."""
    return {
        "found": int({*result.names} == {*TRUTH}),
        "equation": result.equation,
        "names": json.dumps(result.names),
        "coefficients": json.dumps(result.coefficients.tolist()),
        "test_rmse": result.test["rmse"],
        "validation_loss": result.validation.get("loss"),
    }


def table(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported]) -> str:
    """How often the equation was found; of another field, what was found."""
    return "\n\n".join(
        _known(its) if dataset == DATASET else _unknown(dataset, its)
        for dataset, its in by_dataset(rows)
    )


def _known(rows: Sequence[Row]) -> str:
    lines = []
    for method, its in _by_method(rows).items():
        exact = [row for row in its if row["found"] == "1"]
        terms = [dict(zip(*_terms(row), strict=True)) for row in exact]
        mean = [str(Spread.of([term[name] for term in terms])) if terms else "" for name in TRUTH]
        rmse = Spread.of([number(row, "test_rmse") for row in exact]).mean if exact else None
        shown = "" if rmse is None else f"{rmse:.3g}"
        lines.append((f"`{method}`", f"{len(exact)} of {len(its)}", *mean, shown))
    said = (
        "The SIMPLE paper reports that its estimator chooses exactly these terms, with a root\n"
        "mean square error of 0.00622 on the field of PySINDy. Ours is another solution of the\n"
        "equation, so errors are not to be compared. Coefficients and error are of the runs that\n"
        "found it: seeds change the draws and not the split, so all those have the same."
    )
    header = ("method", "found exactly", *(f"`{name}` (-1)" for name in TRUTH), "test RMSE")
    return f"## {DATASET}\n\n{markdown(header, lines)}\n\n{said}"


def _unknown(dataset: str, rows: Sequence[Row]) -> str:
    """Equations with the same terms together, the one found most often first."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(sorted(_terms(row)[0])), []).append(row)
    lines = []
    for its in sorted(found.values(), key=len, reverse=True):
        best = min(its, key=lambda row: number(row, "test_rmse"))
        methods = ", ".join(f"`{name}`" for name in _by_method(its))
        error = f"{number(best, 'test_rmse'):.3g}"
        lines.append((f"`{best['equation']}`", f"{len(its)} of {len(rows)}", methods, error))
    return f"## {dataset}\n\n{markdown(('equation', 'runs', 'found by', 'test RMSE'), lines)}"


def draw(rows: Sequence[Row], _: Mapping[tuple[str, str], Reported], path: Path) -> None:
    """The coefficients of each run: one column a term, one colour where the equation was found.

    Raises:
        BadSettings: matplotlib is missing.
    """
    datasets = by_dataset(rows)
    with picture.panels(path, len(datasets)) as axes:
        for axis, (dataset, its) in zip(axes, datasets, strict=True):
            names = sorted({name for row in its for name in _terms(row)[0]})
            for row in its:
                chosen, coefficients = _terms(row)
                colour = picture.RED if dataset == DATASET and row["found"] != "1" else picture.BLUE
                places = [names.index(name) for name in chosen]
                axis.plot(places, coefficients, "o", color=colour, alpha=0.4)
            axis.set_xlim(-0.6, len(names) - 0.4)
            axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
            axis.set_title(dataset)
            axis.set_ylabel("coefficient")


def _by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["method"], []).append(row)
    return found


def _terms(row: Row) -> tuple[list[str], list[float]]:
    return json.loads(row["names"]), json.loads(row["coefficients"])

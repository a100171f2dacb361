"""The sentences, numbers and examples of code that a report is made of; plain text."""

from collections.abc import Mapping

from khot_server.jobs.artifacts.made import Made
from khot_server.jobs.results import SparseRegressionResult, VaeResult

NAMES = {
    "rmse": "RMSE",
    "r2": "R²",
    "elbo": "ELBO",
    "subset_elbo": "subset ELBO",
    "top_reconstruction": "reconstruction of the k largest",
}
# What a result is told by, the first of these that there is.
MAIN = ("accuracy", "r2", "loss", "elbo")
REFERENCES = {"all": "all columns", "random": "random columns", "greedy": "greedily chosen ones"}
KINDS = {
    "feature_selection": "Feature selection",
    "vae": "k-hot VAE",
    "sparse_regression": "Sparse regression",
}
MOST_TERMS = 20  # of an equation that is written out


def number(value: float, digits: int = 4) -> str:
    """Return a measurement to so many digits."""
    return f"{value:#.{digits}g}".removesuffix(".")


def title(made: Made) -> str:
    """Return what the job was."""
    return f"{KINDS[made.result.kind]} on {made.data.name}"


def headline(made: Made) -> str:
    """Return what came of it, in one line."""
    result = made.result
    main = next(name for name in (*MAIN, *result.test) if name in result.test)
    value = f"{NAMES.get(main, main)} {number(result.test[main], 3)}"
    if isinstance(result, VaeResult):
        rest = [f"{name} {number(value, 3)}" for name, value in result.test.items() if name != main]
        return f"{value} on the test rows" + (f": {', '.join(rest)}" if rest else "")
    chosen = f"{len(result.features)} of {len(result.scores)} columns: {value}"
    others = (
        f"{REFERENCES.get(name, name)} {number(measured[main], 3)}"
        for name, measured in result.references.items()
        if main in measured
    )
    return "; ".join((chosen, *others))


def equation(result: SparseRegressionResult) -> str:
    """Return the model that was found, such as `v_t = -1.000 v_xx + 0.5000 v`."""
    pairs = list(zip(result.coefficients, result.names, strict=True))
    said = [f"{_signed(value)} {name}" for value, name in pairs[:MOST_TERMS]]
    if len(pairs) > MOST_TERMS:
        said.append(f"+ {len(pairs) - MOST_TERMS} more")
    if result.intercept:
        said.append(_signed(result.intercept))
    right = " ".join(said)  # of the first, the sign is that of its number
    return f"{result.target} = {right[2:] if right[0] == '+' else '-' + right[2:]}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'} {number(abs(value))}"


def measurements(made: Made) -> dict[str, Mapping[str, float]]:
    """Return what was measured, by what it was measured of."""
    result = made.result
    if isinstance(result, VaeResult):
        return {"test rows": result.test, "validation rows": result.validation}
    k, n = len(result.features), len(result.scores)
    names = {
        "all": f"all {n} columns",
        "random": f"{k} random columns",
        "greedy": f"{k} columns by orthogonal matching pursuit",
    }
    return {
        f"the {k} chosen columns": result.test,
        **{names.get(name, name): values for name, values in result.references.items()},
        "the chosen ones, on validation rows": result.validation,
    }


def course(made: Made) -> str:
    """Return how the training went, in one line."""
    result = made.result
    epochs = f"{result.epochs_run} epoch{'s' if result.epochs_run != 1 else ''}"
    if isinstance(result, VaeResult):
        return f"{epochs}."
    stable = f"In the last quarter of them the choice agreed with itself to {result.stability:.0%}."
    return f"{epochs}. {stable}"


def examples(made: Made) -> dict[str, str]:
    """Return code to go on with, by what it does."""
    result = made.result
    if isinstance(result, VaeResult):
        return {"Describe and draw examples again, with torch": VAE}
    n = len(result.scores)
    fill = "" if made.data.fill is None else FILL
    if isinstance(result, SparseRegressionResult):
        code = CHOSEN.format(n=n) + fill + LINEAR
        return {"Predict from new rows, with numpy alone": code}
    again = RECONSTRUCTED if made.reconstructed is not None else ""
    return {
        "Choose the columns of new rows, with numpy alone": CHOSEN.format(n=n) + fill + SCALED,
        "Run the trained network on them, with torch": NETWORK.format(n=n) + again,
    }


CHOSEN = """\
import json
import numpy as np

apply = json.load(open("result.json"))["apply"]
values = rows[:, apply["features"]]       # rows: an array (m, {n}), columns as in the data set
"""
SCALED = """\
values = (values - np.array(apply["mean"])) / np.array(apply["scale"])
"""
LINEAR = """\
predictions = values @ np.array(apply["coefficients"]) + apply["intercept"]
"""
FILL = """\
values = np.where(np.isnan(values), apply["fill"], values)
"""
NETWORK = """\
import torch
import khot.models

model = khot.models.load(".")             # the directory of model.safetensors
x = np.zeros((len(values), {n}), np.float32)
x[:, apply["features"]] = values          # it sees the chosen columns only
with torch.no_grad():
    outputs = model(torch.from_numpy(x))
"""
RECONSTRUCTED = """\
rows_again = outputs.sigmoid()            # all columns, as far as the chosen ones tell them
"""
VAE = """\
import khot.models

model = khot.models.load(".")             # the directory of model.safetensors
drawn = model.sample(16)                  # from the prior
again = model.reconstruct(x)              # x: a tensor, float32 (m, d) in [0, 1]
"""

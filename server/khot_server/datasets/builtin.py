"""The data sets that are always there: pictures, `synthetic` and `kuramoto-sivashinsky`.

What is told of them is known without loading them; a test compares it with what is loaded.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets import idx, synthetic
from khot_server.datasets import kuramoto_sivashinsky as ks
from khot_server.datasets.describe import describe_numbers
from khot_server.datasets.frame import Block, Table
from khot_server.datasets.records import (
    MAX_COUNTED,
    Column,
    ColumnType,
    Dataset,
    Pixels,
    Summary,
    pixel_names,
)

TARGET = "label"

# SHA-256 of the values: those of x as float32 in rows, then those of y as int64. What is solved for
# here has that of its recipe.
SHA256 = {
    "digits": "8b3b6ae90863430bdef06a3f7d1ec2f6a905a53d3375655b18cf63780ad98772",
    "mnist": "b90e833b821ecfe68a7596e1b1d6d836acfa4204d250bce192c47d713a654820",
    "fashion-mnist": "0c49509924ed350db8bfd2c882288460157040ae7aff47ae4a3315c098f115c3",
    "synthetic": "5887e547dd8f983fa012b84611c1ac7065f037cf7a4b5267e784acccda1afd05",
    "kuramoto-sivashinsky": ks.SHA256,
}
NAMES = tuple(SHA256)


def dataset(name: str, *, columns: bool = True) -> Dataset:
    """Return what is told of the data set of this name, with or without its columns."""
    summary = _summary(name, columns=columns)
    return Dataset(id=name, name=name, sha256=SHA256[name], summary=summary)


def load(name: str, state_dir: Path, data_dir: Path | None) -> Table:
    """Return the table of the data set of this name.

    Args:
        name: one of NAMES.
        state_dir: where downloaded files are kept.
        data_dir: where to look for files first.

    Raises:
        OSError: its files are neither here nor to be had.
    """
    if name == "synthetic":
        return _synthetic()
    if name == "kuramoto-sivashinsky":
        return _terms()
    if name == "digits":
        return _digits()
    source = {"mnist": idx.MNIST, "fashion-mnist": idx.FASHION_MNIST}[name]
    x, y, test_x, test_y = idx.read(source, data_dir, state_dir / "downloads")
    return _pictures(name, np.concatenate([x, test_x]), np.concatenate([y, test_y]), 255)


def _summary(name: str, *, columns: bool) -> Summary:
    if name in _TOLD:
        summary = _TOLD[name]
        return summary if columns else summary.without_columns()
    if columns:
        return _synthetic().summary
    return Summary(rows=synthetic.ROWS, column_count=synthetic.COLUMNS + 1, target=synthetic.TARGET)


def _label(mean: float, rarest: tuple[str, int]) -> Column:
    """The target of pictures: ten classes."""
    return Column(
        name=TARGET,
        type=ColumnType.INTEGER,
        distinct=10,
        min=0.0,
        max=9.0,
        mean=mean,
        classes=tuple(map(str, range(10))),
        rarest=rarest,
    )


def _term(name: str) -> Column:
    """A term of an equation: its values are as many as there are rows."""
    least, most, mean = ks.TOLD[name]
    return Column(
        name=name,
        type=ColumnType.FLOAT,
        distinct=MAX_COUNTED + 1,
        min=least,
        max=most,
        mean=mean,
    )


_TOLD = {
    "digits": Summary(
        rows=1797,
        column_count=65,
        target=TARGET,
        columns=(_label(4.490818030050083, ("8", 174)),),
        example_shape=(8, 8),
        pixels=Pixels(min=0.0, max=1.0, constant=3),
    ),
    "mnist": Summary(
        rows=70000,
        test_rows=10000,
        column_count=785,
        target=TARGET,
        columns=(_label(4.452428571428571, ("5", 6313)),),
        example_shape=(28, 28),
        pixels=Pixels(min=0.0, max=1.0, constant=65),
    ),
    "fashion-mnist": Summary(
        rows=70000,
        test_rows=10000,
        column_count=785,
        target=TARGET,
        columns=(_label(4.5, ("0", 7000)),),
        example_shape=(28, 28),
        pixels=Pixels(min=0.0, max=1.0, constant=0),
    ),
    "kuramoto-sivashinsky": Summary(
        rows=ks.ROWS,
        column_count=len(ks.TOLD),
        target=ks.TARGET,
        columns=tuple(map(_term, ks.TOLD)),
    ),
}


def _digits() -> Table:
    """As scikit-learn's `load_digits` has them.

    Read from the file that it brings along: to import it takes a second and more, with pandas if
    that is there, which is a good part of a small training.
    """
    found = find_spec("sklearn")
    assert found is not None and found.origin is not None
    rows = np.loadtxt(Path(found.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    return _pictures("digits", rows[:, :-1].reshape(-1, 8, 8), rows[:, -1], 16)


def _pictures(name: str, x: NDArray[np.generic], y: NDArray[np.generic], greatest: int) -> Table:
    """The table of pictures x (rows, height, width) of values from 0 to `greatest`."""
    pixels = np.divide(x.reshape(len(x), -1), greatest, dtype=np.float32)
    summary = _TOLD[name]
    return Table(
        summary=summary,
        sha256=SHA256[name],
        blocks=(
            Block(tuple(pixel_names(summary.example_shape)), pixels.T),
            Block((TARGET,), y.astype(np.float32)[None]),
        ),
    )


@cache
def _synthetic() -> Table:
    x, y, _ = synthetic.make()
    target = y.astype(np.float32)
    columns = [
        describe_numbers(name, values) for name, values in zip(synthetic.NAMES, x.T, strict=True)
    ]
    columns.append(describe_numbers(synthetic.TARGET, target))
    return Table(
        summary=Summary(
            rows=synthetic.ROWS,
            column_count=len(columns),
            target=synthetic.TARGET,
            columns=tuple(columns),
        ),
        sha256=SHA256["synthetic"],
        blocks=(Block(synthetic.NAMES, x.T), Block((synthetic.TARGET,), target[None])),
    )


def _terms() -> Table:
    made = ks.make()
    x, y = made.x.astype(np.float32), made.y.astype(np.float32)
    return Table(
        summary=_TOLD["kuramoto-sivashinsky"],
        sha256=SHA256["kuramoto-sivashinsky"],
        blocks=(Block(made.names, x.T), Block((made.target,), y[None])),
    )

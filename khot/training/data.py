"""Labelled examples, and their split into those to learn from, to choose by and to test with."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from khot._checks import check_choice, refuse

# The dtype of y for each.
OBJECTIVES = {
    "classification": torch.int64,
    "regression": torch.float32,
    "reconstruction": torch.float32,
}


@dataclass(frozen=True)
class Examples:
    """Labelled examples: x (m, n) float32, and what is to be told of them, y.

    Attributes:
        x: (m, n) float32.
        y: (m,), int64 classes from 0 or float32 targets; or x, where it is to be reconstructed.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.x.dtype != torch.float32 or self.x.ndim != 2 or 0 in self.x.shape:
            refuse("Examples", "x must be float32 of shape (m, n), neither of them 0", _of(self.x))
        one_each = self.y.shape == self.x.shape[:1] and self.y.dtype in OBJECTIVES.values()
        if not one_each and (self.y.shape != self.x.shape or self.y.dtype != torch.float32):
            must = f"y must be int64 or float32 of shape ({len(self.x)},), or like x"
            refuse("Examples", must, _of(self.y))
        for name, values in {"x": self.x, "y": self.y}.items():
            finite = values.isfinite().reshape(len(values), -1).all(-1)
            if not bool(finite.all()):
                got = f"others in {int((~finite).sum())} of {len(finite)} rows"
                refuse("Examples", f"{name} must be finite", got)
        if self.y.dtype == torch.int64 and int(self.y.min()) < 0:
            refuse("Examples", "y must be at least 0", str(int(self.y.min())))

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, index: Tensor) -> "Examples":
        """Return those of these indices."""
        return Examples(self.x[index], self.y[index])

    def of(self, objective: str) -> "Examples":
        """Return them, if their y is for this objective.

        Raises:
            ValueError: it is not, or there is no such objective.
        """
        check_choice("Examples", "objective", objective, OBJECTIVES)
        whole = objective == "reconstruction"
        if self.y.dtype != OBJECTIVES[objective] or (self.y.ndim == 2) != whole:
            dtype = str(OBJECTIVES[objective]).removeprefix("torch.")
            shape = "the shape of x" if whole else f"shape ({len(self.y)},)"
            refuse("Examples", f"y must be {dtype} of {shape} for {objective}", _of(self.y))
        if whole and not bool(((self.y >= 0) & (self.y <= 1)).all()):
            refuse("Examples", f"y must be in [0, 1] for {objective}", "others")
        return self


@dataclass(frozen=True)
class Split:
    """Examples to learn from, to choose between models by, and to test the one chosen with."""

    train: Examples
    validation: Examples
    test: Examples

    def __post_init__(self) -> None:
        n, kind = self.train.x.shape[1], self.train.y.dtype
        for name in ("validation", "test"):
            examples: Examples = getattr(self, name)
            if examples.x.shape[1] != n:
                must = f"{name} must have the {n} features of train"
                refuse("Split", must, str(examples.x.shape[1]))
            if examples.y.dtype != kind or examples.y.ndim != self.train.y.ndim:
                refuse("Split", f"{name} must have a y of the kind of train's", _of(examples.y))


def split(
    x: Tensor,
    y: Tensor,
    *,
    objective: str = "classification",
    seed: int = 0,
    validation: float = 0.2,
    test: float | Examples = 0.2,
) -> Split:
    """Return the examples x, y in three parts, the same on every machine and day.

    Args:
        x: float32 of shape (m, n).
        y: int64 classes or float32 targets, shape (m,); or x, to be reconstructed.
        objective: "classification", where each part has every class in proportion,
            "regression" or "reconstruction".
        seed: of the parts, in [0, 2**32).
        validation: the share of the m to choose by, between 0 and 1.
        test: the share of the m to test with; or the examples to test with, where they are
            given apart.

    Raises:
        ValueError: y does not fit the objective, an argument is out of range, or a part would
            be empty.
    """
    examples = Examples(x, y).of(objective)
    rows = split_rows(
        y if objective == "classification" else len(y),
        seed=seed,
        validation=validation,
        test=None if isinstance(test, Examples) else test,
    )
    train, held, tested = (index.to(x.device) for index in rows)
    if not isinstance(test, Examples):
        test = examples.rows(tested)
    return Split(examples.rows(train), examples.rows(held), test)


def split_rows(
    labels: Tensor | int, *, seed: int = 0, validation: float = 0.2, test: float | None = 0.2
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of the rows to learn from, to choose by and to test with, ascending.

    What `split` does, for those who have more to do with their rows.

    Args:
        labels: int64 classes (m,), of which each part has every one in proportion; or how many
            rows there are.
        seed: of the parts, in [0, 2**32).
        validation: the share to choose by, between 0 and 1.
        test: the share to test with; None: none.

    Raises:
        ValueError: an argument is out of range, or a part would be empty.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        refuse("split", "seed must be an integer in [0, 2**32)", repr(seed))
    known = np.zeros(labels, np.int64) if isinstance(labels, int) else labels.cpu().numpy()
    m = len(known)
    held = _count("validation", validation, m)
    tested = 0 if test is None else _count("test", test, m)
    if held + tested >= m:
        refuse("split", "train must keep an example", f"{held + tested} of {m} in other parts")
    order = torch.from_numpy(_proportioned(known, seed))
    tests, choices, rest = order.split([tested, held, m - held - tested])
    return rest.sort().values, choices.sort().values, tests.sort().values


def _count(name: str, share: float, m: int) -> int:
    """How many of m a share is."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
        refuse("split", f"{name} must be a number between 0 and 1", repr(share))
    if (count := round(share * m)) < 1:
        refuse("split", f"{name} must have an example", f"{share} of {m}")
    return count


def _proportioned(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """The indices in a random order of which every beginning has each label in proportion.

    Within a label, the examples get the evenly spaced places (1/2, 3/2, ...) / size in a
    random order; the order is that of the places of all.
    """
    # The old generator, because numpy promises never to change what it draws.
    shuffled = np.random.RandomState(seed).permutation(len(labels))
    places = np.empty(len(labels))
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        places[members] = (np.arange(len(members)) + 0.5) / len(members)
    return np.argsort(places, kind="stable")


def _of(value: Tensor) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}".removeprefix("torch.")

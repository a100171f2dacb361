"""Text as numbers: each text by its place among all that occur."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from khot_server.datasets.records import MAX_COUNTED

CODE = np.dtype("<i2")
MISSING = -1


@dataclass(frozen=True)
class Coded:
    """A column of text.

    Attributes:
        codes: of every row the place of its text; MISSING where there is none.
        texts: sorted, each of some row; None: there are more than MAX_COUNTED, and codes only
            tell which are missing.
    """

    codes: NDArray[np.int16]
    texts: tuple[str, ...] | None


class Coder:
    """Takes a column of text part by part."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int16]] = []
        self._places: dict[str, int] = {}
        self._many = False

    def add(self, values: Iterable[str | None]) -> None:
        """Take the next rows; None and the empty text are missing."""
        texts = [text or "" for text in values]
        if not self._many:
            for text in set(texts) - self._places.keys() - {""}:
                self._places[text] = len(self._places)
        if len(self._places) > MAX_COUNTED:
            self._many, self._places = True, {}  # memory would fill with them
        codes = (self._places.get(text, 0) if text else MISSING for text in texts)
        self._parts.append(np.fromiter(codes, CODE, len(texts)))

    def finish(self) -> Coded:
        """Return the whole column."""
        codes = np.concatenate(self._parts)
        if self._many:
            return Coded(np.minimum(codes, 0), None)
        texts = sorted(self._places)
        order = np.full(len(texts) + 1, MISSING, CODE)  # the last is for codes of -1
        order[[self._places[text] for text in texts]] = range(len(texts))
        return Coded(order[codes], tuple(texts))


def encoded(values: Iterable[str | None]) -> Coded:
    """Return a whole column."""
    coder = Coder()
    coder.add(values)
    return coder.finish()

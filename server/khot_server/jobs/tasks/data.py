"""The data of a task: its table, read, split and imputed, as tensors on the device."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from khot.training import split_rows
from khot_server.datasets.examples import Prepared, impute, prepare
from khot_server.datasets.table import load
from khot_server.jobs.artifacts import Provenance, provenance
from khot_server.jobs.messages import Order

Parts = tuple[Tensor, Tensor, Tensor]
NAMED = 10  # columns in a warning


class Source:
    """Where the examples of an order come from.

    Attributes:
        prepared: the table as the spec wants it.
        x: of the rows to learn from, to choose by and to test with.
        y: likewise; None: there is no target.
        fill: what stands for a missing value of each feature; None: none was missing.

    Raises:
        ValueError: the specification does not fit the data.
    """

    def __init__(self, order: Order) -> None:
        self._order, self._began = order, datetime.now(UTC)
        table = load(order.spec.dataset, order.state_dir, order.data_dir)
        self.prepared = prepare(order.spec, table)
        rows = _rows(order, self.prepared)
        x = [self.prepared.x[index] for index in rows]
        y = None if self.prepared.y is None else [self.prepared.y[index] for index in rows]
        if self.prepared.test is not None:
            x[2], own = self.prepared.test
            if y is not None and own is not None:
                y[2] = own
        filled, self.fill = impute(*x)
        self.x = self._parts(filled)
        self.y = None if y is None else self._parts(y)

    def provenance(self) -> Provenance:
        """Where a result comes from that is there now."""
        return provenance(
            self._order.spec,
            data_sha256=self.prepared.sha256,
            device=self._order.device,
            threads=torch.get_num_threads(),
            start_time=self._began,
            end_time=datetime.now(UTC),
        )

    def _parts(self, parts: Sequence[NDArray[Any]]) -> Parts:
        device = torch.device(self._order.device)
        train, validation, test = (
            torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts
        )
        return train, validation, test


def _rows(order: Order, prepared: Prepared) -> list[NDArray[np.int64]]:
    spec, y = order.spec, prepared.y
    by_class = y is not None and prepared.objective == "classification"
    parts = split_rows(
        torch.from_numpy(y) if by_class else len(prepared.x),
        seed=spec.split_seed,
        validation=spec.validation_share,
        test=None if prepared.test is not None else spec.test_share,
    )
    return [part.numpy() for part in parts]


def constant_columns(names: Sequence[str], constant: Sequence[int]) -> tuple[str, ...]:
    """Return the warning about columns that are constant; none if there is no such column."""
    if not constant:
        return ()
    listed = ", ".join(names[index] for index in constant[:NAMED])
    more = f" and {len(constant) - NAMED} more" if len(constant) > NAMED else ""
    return (f"columns: constant ones are never chosen; got {listed}{more}",)

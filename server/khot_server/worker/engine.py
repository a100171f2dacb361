"""The engine: batches in shared memory -> khot. The only serving file that imports khot.

One loop, one batch at a time, on one device. The registry decides what there is to
call, so a new operator of the library is served without a line here.
"""

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

import khot
from khot.registry import properties
from khot_server.messages import Array, BatchRequest, BatchResult, Hello, Layout, OperatorInfo


@dataclass
class Stats:
    """What solving cost, summed over the rows of a batch."""

    iterations: Counter[int] = field(default_factory=Counter)
    fallback_rows: int = 0

    def add(self, diagnostics: khot.Diagnostics) -> None:
        counts, rows = diagnostics.iterations.unique(return_counts=True)
        self.iterations.update(dict(zip(counts.tolist(), rows.tolist(), strict=True)))
        self.fallback_rows += int(diagnostics.fallback.sum())


class Engine:
    """The operators of the registry on one device."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._threads = torch.get_num_threads()
        self._warm_up()

    def _warm_up(self) -> None:
        """Draw once: what is loaded on first use, or fails, must not do so under a caller."""
        k = torch.ones(1, device=self.device)
        soft, diagnostics = khot.sigmoid_topk_with_diagnostics(k.new_zeros(1, 2), k)
        Stats().add(diagnostics)
        for row in khot.operators("design"):
            row.function(soft, seeds=khot.row_seeds(0, 1).to(self.device))

    def hello(self, pid: int) -> Hello:
        """What the API process must know to serve without importing khot."""
        rows = [
            OperatorInfo(row.name, row.kind, row.summary, row.reference, properties(row))
            for row in khot.operators()
            if _served(row)
        ]
        return Hello(rows, str(self.device), pid)

    def run(self, request: BatchRequest, memory: memoryview) -> BatchResult:
        """Apply the operator to the rows in `memory`, and write the result there.

        Values are refused by the library. If it refuses the batch, the items run one
        by one, so that only the bad ones fail.
        """
        start = time.perf_counter()
        stats, refusals = Stats(), {}
        try:
            self._apply(request, memory, request.slices, stats)
        except ValueError:
            stats = Stats()
            for index, rows in enumerate(request.slices):
                try:
                    self._apply(request, memory, [rows], stats)
                except ValueError as error:
                    refusals[str(index)] = str(error)
        return BatchResult(
            request.id,
            time.perf_counter() - start,
            refusals,
            {str(count): rows for count, rows in stats.iterations.items()},
            stats.fallback_rows,
        )

    def _apply(
        self, request: BatchRequest, memory: memoryview, items: list[slice], stats: Stats
    ) -> None:
        """Apply the operator to these items, which follow each other."""
        operator = khot.operator(request.operator)
        # torch sums a row in an order that depends on the batch if it has threads to share it
        on_kernels = operator.native and khot.native_info().in_use
        torch.set_num_threads(self._threads if on_kernels else 1)
        view, rows = _Views(request.layout, memory), slice(items[0].start, items[-1].stop)
        scores, k, tau = (self._put(part[rows]) for part in (view.scores, view.k, view.tau))
        if request.kind == "design" and scores.dtype == torch.float16:
            scores = scores.float()  # whose sums stay whole
        if request.kind == "design" or request.operator == "sigmoid_topk":
            soft, diagnostics = khot.sigmoid_topk_with_diagnostics(scores, k, tau=tau)
            stats.add(diagnostics)
        else:
            assert isinstance(operator, khot.Relaxation)
            soft = operator.function(scores, k, **{operator.tau_keyword: tau})
        if request.kind == "relaxation":
            torch.from_numpy(view.result[rows]).copy_(soft)
            return
        # from the item's seed and the row's place in it, so that batching changes nothing
        seeds = [khot.row_seeds(int(view.seeds[i.start]), i.stop - i.start) for i in items]
        hard = operator.function(soft, seeds=torch.cat(seeds).to(self.device))
        view.result[rows] = np.packbits(hard.cpu().numpy() != 0, axis=-1, bitorder="little")

    def _put(self, array: Array) -> Tensor:
        """The array on the device; on a CPU it is the shared memory itself."""
        return torch.from_numpy(array).to(self.device)


def _served(row: khot.Operator) -> bool:
    """Whether a batch of rows with a k and a temperature each can go to this operator."""
    if isinstance(row, khot.Relaxation):
        return row.fractional_k and not row.ranked
    return isinstance(row, khot.Design)


class _Views:
    """The arrays of a batch, as numpy arrays over its slot."""

    def __init__(self, layout: Layout, memory: memoryview) -> None:
        rows, n, dtype = layout.rows, layout.n, np.dtype(layout.dtype)
        self.k = np.frombuffer(memory, np.float64, rows, layout.k)
        self.tau = np.frombuffer(memory, np.float64, rows, layout.tau)
        self.seeds = np.frombuffer(memory, np.uint64, rows, layout.seeds)
        self.scores: Array = np.frombuffer(memory, dtype, rows * n, layout.scores).reshape(rows, n)
        size = rows * layout.result_row
        raw = np.frombuffer(memory, np.uint8, size, layout.result).reshape(rows, layout.result_row)
        self.result: Array = raw if layout.kind == "design" else raw.view(dtype)

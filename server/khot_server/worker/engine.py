"""The engine: batches in shared memory -> khot. With `slots.py` the only serving code that
imports torch.

One loop, one batch at a time, on one device. The registry decides what there is to
call, so a new operator of the library is served without a line here.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog
import torch
from torch import Tensor

import khot
from khot.registry import properties
from khot.sampling import precise
from khot_server.messages import BatchRequest, BatchResult, Call, Hello, OperatorInfo
from khot_server.worker.slots import Rows, Slot

log = structlog.get_logger()


@dataclass(frozen=True)
class Found:
    """What the library returned for some rows.

    Attributes:
        value: soft rows or draws, if they are wanted.
        pi: inclusion probabilities, if they are.
        gradients: if they are.
        diagnostics: of the roots, if the operator finds some.
    """

    value: Tensor | None = None
    pi: Tensor | None = None
    gradients: khot.Gradients | None = None
    diagnostics: khot.Diagnostics | None = None

    @property
    def differentiated(self) -> dict[str, Tensor]:
        """The gradients in k and tau that there are."""
        if self.gradients is None:
            return {}
        both = {"k": self.gradients.k, "tau": self.gradients.tau}
        return {name: gradient for name, gradient in both.items() if gradient is not None}

    @property
    def hard_rows(self) -> tuple[int, int]:
        """How many rows needed bisection, and of how many the root was not found."""
        if self.diagnostics is None:
            return 0, 0
        solved = self.diagnostics
        fallback, converged = (
            int(np.count_nonzero(column.numpy(force=True)))
            for column in (solved.fallback, solved.converged)
        )
        return fallback, solved.converged.numel() - converged


class Engine:
    """The operators of the registry on one device."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._threads = torch.get_num_threads()
        self._warm_up()

    def _warm_up(self) -> None:
        """Use everything once: what is loaded, or fails, on first use must not under a caller."""
        scores = torch.zeros(1, 2, device=self.device)
        one = torch.ones(1, dtype=torch.float64, device=self.device)
        for row in khot.operators():
            call = Call(row.name, "{}", 2, "float32", 1.0 if row.one_k else "rows")
            seeds = None if isinstance(row, khot.Relaxation) else khot.row_seeds(0, 1)
            self._find(call, scores, 1 if row.one_k else one, one, seeds)
        khot.vjp("sigmoid_topk", scores, one, cotangent=scores)

    def hello(self, pid: int) -> Hello:
        """What the API process must know to serve without importing khot."""
        return Hello(tuple(_info(row) for row in khot.operators()), str(self.device), pid)

    def run(self, request: BatchRequest, memory: memoryview) -> BatchResult:
        """Carry out the call for the rows in `memory`, and write the result there.

        Values are refused by the library. If it refuses the batch, the items run one
        by one, so that only the bad ones fail.
        """
        start = time.perf_counter_ns()
        slot, call = Slot(request, memory), request.call
        refusals: dict[int, str] = {}
        fallback_rows, nonconverged_rows, found = 0, 0, Found()
        try:
            try:
                found = self._apply(call, slot.rows())
                fallback_rows, nonconverged_rows = found.hard_rows
            except (ValueError, TypeError) as error:
                refusals[0] = str(error)
            if refusals and request.items > 1:
                refusals.clear()
                for item in range(request.items):
                    try:
                        found = self._apply(call, slot.rows(item))
                        fallback, nonconverged = found.hard_rows
                        fallback_rows += fallback
                        nonconverged_rows += nonconverged
                    except (ValueError, TypeError) as error:
                        refusals[item] = str(error)
        except Exception as error:  # for want of memory, or a fault of ours: others go on
            log.exception("batch_failed", operator=call.operator)
            said = str(error).strip().partition("\n")[0]
            failure = f"{type(error).__name__}: {said}"
            return BatchResult(request.id, time.perf_counter_ns() - start, failure=failure)
        return BatchResult(
            id=request.id,
            compute_ns=time.perf_counter_ns() - start,
            algorithm=self._algorithm(call),
            roots=found.diagnostics is not None,
            gradients=tuple(found.differentiated),
            fallback_rows=fallback_rows,
            nonconverged_rows=nonconverged_rows,
            refusals=refusals,
        )

    def _apply(self, call: Call, rows: Rows) -> Found:
        """Carry out the call for some rows."""
        row = khot.operator(call.operator)
        # torch sums a row in an order that depends on the batch if it has threads to share it
        self._set_threads(self._threads if row.native and khot.native_info().in_use else 1)
        k: Any = call.k
        if call.k == "rows":
            k = self._put(rows["k"])
        elif call.k is not None and float(call.k).is_integer():
            k = int(call.k)
        seeds = None if isinstance(row, khot.Relaxation) else self._put(rows.seeds())
        given: dict[str, Any] = {name: self._put(rows.drawn(name)) for name in rows.pulled}
        if call.baseline == "leave_one_out":
            given["baseline"] = call.baseline
        scores, tau = self._put(rows["scores"]), self._put(rows["tau"])
        if call.pulled == "cotangent" and not call.columns:
            given["cotangent"] = scores.new_empty(*scores.shape, 0)  # of no size, so not sent
        found = self._find(call, scores, k, tau, seeds, **given)
        _write(call, rows, found)
        return found

    def _find(
        self, call: Call, scores: Tensor, k: Any, tau: Tensor, seeds: Tensor | None, **given: Any
    ) -> Found:
        """Ask the library."""
        row = khot.operator(call.operator)
        options = {} if call.options == "{}" else json.loads(call.options)
        if isinstance(row, khot.Relaxation):
            options[row.tau_keyword] = tau
        else:
            options["num_samples"] = call.samples
        if isinstance(row, khot.Estimator):
            options["tau"] = tau
        if call.pulled:
            gradients = khot.vjp(row.name, scores, k, seeds, **given, **options)
            return Found(gradients.value if call.form else None, gradients=gradients)
        if seeds is not None:
            options["seeds"] = seeds
        arguments = (scores,) if k is None else (scores, k)
        with torch.inference_mode():
            if isinstance(row, khot.Design):
                pi, diagnostics = scores, None
                if k is not None:
                    solve = khot.sigmoid_topk_with_diagnostics
                    pi, diagnostics = solve(precise(scores), k, tau=tau)
                value = row.function(pi, **options)
                return Found(value, pi if call.pi else None, diagnostics=diagnostics)
            if row.with_diagnostics is None:
                return Found(row.function(*arguments, **options))
            value, diagnostics = row.with_diagnostics(*arguments, **options)
            if diagnostics.iterations.ndim > 1:  # a root for each sample; a row tells of one
                diagnostics = diagnostics.hardest()
            return Found(value, diagnostics=diagnostics)

    def _put(self, tensor: Tensor) -> Tensor:
        """The tensor on the device; on a CPU it is the shared memory itself."""
        return tensor.to(self.device)

    def _set_threads(self, threads: int) -> None:
        if threads != torch.get_num_threads():
            torch.set_num_threads(threads)

    def _algorithm(self, call: Call) -> str:
        """The kernels that ran, and their variant, or torch."""
        row, native = khot.operator(call.operator), khot.native_info()
        kernels = row.kernels
        if isinstance(row, khot.Design) and call.k is not None:
            kernels = ("sigmoid_topk", *kernels)
        if not (kernels and native.in_use and self.device.type == "cpu"):
            return "torch"
        beside = "" if row.kernels else ", torch"
        return f"{', '.join(kernels)} (C, {native.variant}){beside}"


def _write(call: Call, rows: Rows, found: Found) -> None:
    """Put what was found where the API process looks for it."""
    if found.pi is not None:
        rows["pi"].copy_(found.pi)
    if found.gradients is not None:
        rows["gradient"].copy_(found.gradients.scores)
        for name, gradient in found.differentiated.items():
            rows[f"gradient_{name}"].copy_(gradient)
    if found.diagnostics is not None:
        rows["iterations"].copy_(found.diagnostics.iterations)
        rows["residual"].copy_(found.diagnostics.residual)
    if found.value is None or not call.columns:
        return
    if call.form == "bits":
        rows.write_drawn("bits", khot.pack_bits(found.value))
    elif call.form == "indices":
        rows.write_units(found.value)
    elif call.form is not None:
        rows.write_drawn(call.form, found.value)


def _info(row: khot.Operator) -> OperatorInfo:
    return OperatorInfo(
        name=row.name,
        kind=row.kind,  # type: ignore[arg-type]
        summary=row.summary,
        reference=row.reference,
        properties=properties(row),
        options=dict(row.options),
        needs_k=row.needs_k,
        one_k=row.one_k,
        ranked=isinstance(row, khot.Relaxation) and row.ranked,
        needs_loss=isinstance(row, khot.Estimator) and row.needs_loss,
        relaxed=isinstance(row, khot.Estimator) and not row.hard,
        roots=isinstance(row, khot.Design) or row.with_diagnostics is not None,
        design=_design(row),
    )


def _design(row: khot.Operator) -> str | None:
    """The design by which the operator draws, if it does."""
    if isinstance(row, khot.Estimator):
        return row.law
    return row.name if isinstance(row, khot.Design) else None

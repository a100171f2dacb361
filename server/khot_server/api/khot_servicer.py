"""KHotService: items of a request -> work for the batcher -> results, each on its own."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from khot_proto import TensorError, from_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceServicer
from khot_proto.v1.tensor_pb2 import Tensor
from khot_server.api.guard import identity
from khot_server.batching.batcher import Answer, Batcher, Work
from khot_server.errors import EngineUnavailable, InvalidArgument, ServiceError, item_status
from khot_server.messages import Array, Kind

_KINDS = {
    "relaxation": pb.OPERATOR_KIND_RELAXATION,
    "design": pb.OPERATOR_KIND_DESIGN,
}
_METHODS = {"relaxation": "Relax", "design": "Sample"}
Result = TypeVar("Result", pb.RelaxResult, pb.SampleResult)


class KHotService(KHotServiceServicer):
    """The servicer; see the comments of khot_service.proto for what is promised."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher

    async def Relax(self, request: pb.RelaxRequest, context: Any) -> pb.RelaxResponse:
        async def one(field: str, item: pb.RelaxItem) -> pb.RelaxResult:
            work = self._work("relaxation", field, item)
            answer = await self._answer(field, work)
            tensor = item.scores
            soft = Tensor(dtype=tensor.dtype, shape=tensor.shape, data=answer.data)
            return pb.RelaxResult(soft=soft, timing=_timing(answer))

        return pb.RelaxResponse(results=await _each(request.items, one, pb.RelaxResult))

    async def Sample(self, request: pb.SampleRequest, context: Any) -> pb.SampleResponse:
        async def one(field: str, item: pb.SampleItem) -> pb.SampleResult:
            seed = item.seed if item.HasField("seed") else secrets.randbits(64)
            work = self._work("design", field, item, seed)
            answer = await self._answer(field, work)
            mask = pb.Mask(shape=item.scores.shape, bits=answer.data)
            return pb.SampleResult(mask=mask, seed=seed, timing=_timing(answer))

        return pb.SampleResponse(results=await _each(request.items, one, pb.SampleResult))

    async def ListOperators(
        self, request: pb.ListOperatorsRequest, context: Any
    ) -> pb.ListOperatorsResponse:
        if not self._batcher.operators:
            raise EngineUnavailable("engine: must have said hello; got none yet")
        return pb.ListOperatorsResponse(
            operators=[
                pb.Operator(
                    name=row.name,
                    kind=_KINDS[row.kind],
                    summary=row.summary,
                    reference=row.reference,
                    properties=row.properties,
                )
                for row in self._batcher.operators.values()
            ]
        )

    def _work(
        self, kind: Kind, field: str, item: pb.RelaxItem | pb.SampleItem, seed: int = 0
    ) -> Work:
        """The item, checked as far as its form goes; its values are the library's to judge."""
        known = [row.name for row in self._batcher.operators.values() if row.kind == kind]
        if self._batcher.operators and item.operator not in known:
            other = self._batcher.operators.get(item.operator)
            hint = f", which is for {_METHODS[other.kind]}" if other else ""
            raise InvalidArgument(
                f"{field}.operator",
                f"{field}.operator: must be one of {', '.join(known)}; got {item.operator!r}{hint}",
            )
        scores = _scores(f"{field}.scores", item.scores)
        k = _per_row(f"{field}.k", item.k, len(scores), None)
        tau = _per_row(f"{field}.tau", item.tau, len(scores), 1.0)
        return Work(identity().tenant, kind, item.operator, scores, k, tau, seed)

    async def _answer(self, field: str, work: Work) -> Answer:
        answer = await self._batcher.submit(work)
        if answer.refusal is not None:
            raise InvalidArgument(field, f"{field}: {answer.refusal}")
        return answer


async def _each(
    items: Sequence[Any],
    one: Callable[[str, Any], Awaitable[Result]],
    result_type: type[Result],
) -> list[Result]:
    """The result of every item, side by side.

    A bad item becomes a result with a status. What no item is to blame for, such as a
    full queue or a lost engine, fails the call, so that the caller's retries see it.
    """
    if not items:
        raise InvalidArgument("items", "items: must hold at least one item; got none")

    async def guarded(index: int, item: Any) -> Result:
        try:
            return await one(f"items[{index}]", item)
        except InvalidArgument as error:
            return result_type(status=item_status(error))

    tasks = [asyncio.ensure_future(guarded(index, item)) for index, item in enumerate(items)]
    try:
        return list(await asyncio.gather(*tasks))
    except (ServiceError, asyncio.CancelledError):
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _scores(field: str, tensor: Tensor) -> Array:
    """The scores as rows (r, n)."""
    try:
        array: Array = from_tensor(tensor)
    except TensorError as error:
        raise InvalidArgument(field, f"{field}: {error}") from None
    if array.dtype.kind != "f":
        raise InvalidArgument(
            field, f"{field}: must be float16, float32 or float64; got {array.dtype.name}"
        )
    if array.ndim not in (1, 2) or array.size == 0:
        raise InvalidArgument(
            field,
            f"{field}: must have shape (n) or (rows, n), neither of them 0; got {array.shape}",
        )
    return array.reshape(-1, array.shape[-1])


def _per_row(field: str, values: Sequence[float], rows: int, default: float | None) -> Array:
    """One value a row, from one value, one a row, or none if there is a default."""
    if not values and default is not None:
        values = (default,)
    if len(values) not in (1, rows):
        raise InvalidArgument(
            field, f"{field}: must be one number, or one for each of {rows} rows; got {len(values)}"
        )
    return np.broadcast_to(np.asarray(values, np.float64), (rows,))


def _timing(answer: Answer) -> pb.Timing:
    timing = pb.Timing(batch_rows=answer.batch_rows)
    timing.queue.FromNanoseconds(round(answer.queue_s * 1e9))
    timing.compute.FromNanoseconds(round(answer.compute_s * 1e9))
    return timing

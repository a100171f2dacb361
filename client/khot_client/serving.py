"""Relaxing and sampling, for blocking programs: `Client` has these, and jobs and data besides."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from numpy.typing import ArrayLike

from khot_client import operations
from khot_client.calls import Call
from khot_client.coalescing import Coalescer
from khot_client.connection import Connection
from khot_client.errors import KhotError
from khot_client.operations import RELAX, RELAX_VJP, SAMPLE, SAMPLE_VJP, Item, Operation, Outcome
from khot_client.streams import IN_FLIGHT, Stream
from khot_client.values import (
    DESIGN,
    ESTIMATOR,
    RELAXATION,
    Gradients,
    MaskFormat,
    Operator,
    Priority,
    Relaxed,
    RelaxItem,
    Sample,
    SampleItem,
    ServerInfo,
)


class Serving:
    """The operations of KHotService, each as a function of arrays."""

    def __init__(self, connection: Connection, *, coalesce: bool) -> None:
        self._connection = connection
        self._coalescer = Coalescer(connection) if coalesce else None

    def relax(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        *,
        tau: ArrayLike | None = None,
        operator: str = RELAXATION,
        options: Mapping[str, Any] | None = None,
        g: ArrayLike | None = None,
        diagnostics: bool = False,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> Relaxed:
        """Return the soft k-hot vector of each row of scores.

        Args:
            x: scores, (n,) or (rows, n); -inf masks a unit.
            k: how many to choose, in [0, n]: one number, or one a row; None where the
                operator has a default.
            tau: temperature above 0: one number, or one a row; None: 1.
            operator: a relaxation of `list_operators()`.
            options: the operator's own keywords.
            g: a cotangent, in the shape of the result: its gradients come with the values.
            diagnostics: whether to tell iterations and residual of each row.
            priority: interactive, or bulk, which lets others pass.
            timeout_s: of this call; None: the client's.

        Raises:
            KhotError: the call failed, or the request was refused.
        """
        item = RelaxItem(x, k, tau, operator, options, g, diagnostics)
        return self._one(RELAX, item, priority, timeout_s)

    def relax_vjp(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        g: ArrayLike,
        *,
        tau: ArrayLike | None = None,
        operator: str = RELAXATION,
        options: Mapping[str, Any] | None = None,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> Gradients:
        """Return the gradients of `relax` in x, k and tau, without its values.

        Args:
            x: scores, as in `relax`.
            k: as in `relax`.
            g: a cotangent, in the shape of the result of `relax`.
            tau: as in `relax`.
            operator: as in `relax`.
            options: as in `relax`.
            priority: as in `relax`.
            timeout_s: as in `relax`.

        Raises:
            KhotError: the call failed, or the request was refused.
        """
        item = RelaxItem(x, k, tau, operator, options, g)
        return self._one(RELAX_VJP, item, priority, timeout_s)

    def sample(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        *,
        tau: ArrayLike | None = None,
        operator: str = DESIGN,
        seed: int | None = None,
        num_samples: int | None = None,
        options: Mapping[str, Any] | None = None,
        g: ArrayLike | None = None,
        losses: ArrayLike | None = None,
        baseline: ArrayLike | str | None = None,
        format: MaskFormat | None = None,  # noqa: A002
        include_pi: bool = False,
        diagnostics: bool = False,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> Sample:
        """Return a hard k-hot mask for each row of scores, drawn with relax(x, k, tau=tau)
        as its inclusion probabilities; or a draw of an estimator.

        Args:
            x: scores, as in `relax`.
            k: how many to choose: one number, or one a row; None for a design whose scores are
                the probabilities themselves, and where the operator has a default.
            tau: temperature, as in `relax`.
            operator: a design or an estimator of `list_operators()`.
            seed: in [0, 2**64); the same one gives the same draws again. None: a random
                one, which is in the answer.
            num_samples: how many draws of each row, as a first dimension; None: one, without.
            options: the operator's own keywords.
            g: a cotangent, in the shape of the draws, of an estimator that does not need the
                loss: its gradients come with the draws.
            losses: of each draw, for one that does.
            baseline: subtracted from the losses: one for each, or `leave_one_out`.
            format: how masks travel; None: in as few bytes as they can. The answer is the same.
            include_pi: whether to answer with the inclusion probabilities; for designs.
            diagnostics: as in `relax`.
            priority: as in `relax`.
            timeout_s: as in `relax`.

        Raises:
            KhotError: the call failed, or the request was refused.
        """
        item = SampleItem(
            x,
            k,
            tau,
            operator,
            seed,
            num_samples,
            options,
            g,
            losses,
            baseline,
            format,
            include_pi,
            diagnostics,
        )
        return self._one(SAMPLE, item, priority, timeout_s)

    def sample_vjp(
        self,
        x: ArrayLike,
        k: ArrayLike | None,
        g: ArrayLike | None = None,
        *,
        seed: int,
        tau: ArrayLike | None = None,
        operator: str = ESTIMATOR,
        num_samples: int | None = None,
        options: Mapping[str, Any] | None = None,
        losses: ArrayLike | None = None,
        baseline: ArrayLike | str | None = None,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> Gradients:
        """Return the gradients of an estimator in x, k and tau; the draw is made again.

        Args:
            x: scores, as in `sample`.
            k: as in `sample`.
            g: a cotangent, in the shape of the draws; None with `losses`.
            seed: of the draw.
            tau: as in `sample`.
            operator: the estimator of the draw.
            num_samples: as in `sample`.
            options: as in `sample`.
            losses: as in `sample`.
            baseline: as in `sample`.
            priority: as in `relax`.
            timeout_s: as in `relax`.

        Raises:
            KhotError: the call failed, or the request was refused.
        """
        item = SampleItem(x, k, tau, operator, seed, num_samples, options, g, losses, baseline)
        return self._one(SAMPLE_VJP, item, priority, timeout_s)

    def relax_many(
        self,
        items: Iterable[RelaxItem],
        *,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> list[Relaxed | KhotError]:
        """Relax several items in one call. A bad item has its error in its place, not raised."""
        return self._many(RELAX, items, priority, timeout_s)

    def relax_vjp_many(
        self,
        items: Iterable[RelaxItem],
        *,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> list[Gradients | KhotError]:
        """The gradients of several items, each with its g, in one call, as `relax_many`."""
        return self._many(RELAX_VJP, items, priority, timeout_s)

    def sample_many(
        self,
        items: Iterable[SampleItem],
        *,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> list[Sample | KhotError]:
        """Sample several items in one call. A bad item has its error in its place, not raised."""
        return self._many(SAMPLE, items, priority, timeout_s)

    def sample_vjp_many(
        self,
        items: Iterable[SampleItem],
        *,
        priority: Priority | None = None,
        timeout_s: float | None = None,
    ) -> list[Gradients | KhotError]:
        """The gradients of several draws, each with its seed, in one call, as `sample_many`."""
        return self._many(SAMPLE_VJP, items, priority, timeout_s)

    def stream(self, in_flight: int = IN_FLIGHT) -> Stream:
        """Return a stream for many requests at once; use it in a `with`.

        Args:
            in_flight: how many may be unanswered; the next one waits for room.
        """
        return Stream(self._connection, in_flight)

    def relax_stream(
        self,
        items: Iterable[RelaxItem],
        *,
        in_flight: int = IN_FLIGHT,
        priority: Priority | None = None,
    ) -> Iterator[Relaxed | KhotError]:
        """Yield the outcome of each item, in order, with many under way at once.

        A bad item has its error in its place, not raised. The items are taken as there is
        room, so there may be any number of them.

        Raises:
            KhotError: the stream broke.
        """
        return self._streamed(RELAX, items, in_flight, priority)

    def sample_stream(
        self,
        items: Iterable[SampleItem],
        *,
        in_flight: int = IN_FLIGHT,
        priority: Priority | None = None,
    ) -> Iterator[Sample | KhotError]:
        """Yield the outcome of each item, in order, as `relax_stream`."""
        return self._streamed(SAMPLE, items, in_flight, priority)

    def list_operators(self) -> list[Operator]:
        """Return the operators that the server has, with what each promises."""
        return self._connection.call(operations.list_operators())

    def server(self) -> ServerInfo:
        """Return the server's version, devices and limits."""
        return self._connection.call(operations.server())

    def _one(
        self,
        operation: Operation[Item, Outcome],
        item: Item,
        priority: str | None,
        timeout_s: float | None,
    ) -> Outcome:
        if self._coalescer is not None:
            return self._coalescer.call(operation, item, priority, timeout_s)
        return self._connection.call(operation.one(item, priority), timeout_s)

    def _many(
        self,
        operation: Operation[Item, Outcome],
        items: Iterable[Item],
        priority: str | None,
        timeout_s: float | None,
    ) -> list[Outcome | KhotError]:
        call = operation.many(items, priority)
        return self._connection.call(call, timeout_s) if isinstance(call, Call) else [*call]

    def _streamed(
        self,
        operation: Operation[Item, Outcome],
        items: Iterable[Item],
        in_flight: int,
        priority: str | None,
    ) -> Iterator[Outcome | KhotError]:
        with Stream(self._connection, in_flight) as stream:
            yield from stream.outcomes(operation, items, priority)

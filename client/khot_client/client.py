"""The client: calls of the service as plain functions of arrays and frozen data."""

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

from numpy.typing import ArrayLike

from khot_client import messages
from khot_client.connection import Connection
from khot_client.errors import InvalidRequest, KhotError, ServerError
from khot_client.jobs import Job
from khot_client.values import (
    DESIGN,
    RELAXATION,
    FeatureSelection,
    Operator,
    Relaxed,
    RelaxItem,
    Sample,
    SampleItem,
)
from khot_proto.v1 import job_service_pb2 as job_pb
from khot_proto.v1 import khot_service_pb2 as pb

Item = TypeVar("Item", RelaxItem, SampleItem)
Outcome = TypeVar("Outcome", Relaxed, Sample)


class Client:
    """A connection to a khot service. May be shared by threads; use it in a `with`, or close it.

    Args:
        address: host:port; default `$KHOT_ADDRESS`, then 127.0.0.1:50551.
        token: sent with every call; default `$KHOT_TOKEN`, then none.
        tls: False for plain text, True for the system's authorities, or the path of a
            PEM file with others. A token goes over plain text only within this machine.
        timeout_s: how long a call may take, retries included; None for no limit.

    Raises:
        BadSettings: an argument cannot be used. No call is made here: a server that is
            not there is told by the first call.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        tls: bool | str | os.PathLike[str] = False,
        timeout_s: float | None = 30.0,
    ) -> None:
        self._connection = Connection(address, token, tls, timeout_s)

    @property
    def address(self) -> str:
        """Where the service is."""
        return self._connection.address

    def relax(
        self, x: ArrayLike, k: ArrayLike, *, tau: ArrayLike = 1.0, operator: str = RELAXATION
    ) -> Relaxed:
        """Return the soft k-hot vector of each row of scores.

        Args:
            x: scores, (n,) or (rows, n); -inf masks a unit.
            k: how many to choose, in [0, n]: one number, or one a row.
            tau: temperature above 0: one number, or one a row.
            operator: a relaxation of `operators()`.

        Raises:
            KhotError: the call failed, or the request was refused.
        """
        return _only(self.relax_many([RelaxItem(x, k, tau, operator)]))

    def sample(
        self,
        x: ArrayLike,
        k: ArrayLike,
        *,
        tau: ArrayLike = 1.0,
        operator: str = DESIGN,
        seed: int | None = None,
    ) -> Sample:
        """Return a hard k-hot mask for each row of scores, drawn with relax(x, k, tau=tau)
        as its inclusion probabilities.

        Args:
            x: scores, as in `relax`.
            k: how many to choose, whole: one number, or one a row.
            tau: temperature, as in `relax`.
            operator: a design of `operators()`.
            seed: in [0, 2**64): the same one gives the same masks. None: the client draws
                one, which is in the answer.

        Raises:
            KhotError: the call failed, or the request was refused.
        """
        return _only(self.sample_many([SampleItem(x, k, tau, operator, seed)]))

    def relax_many(self, items: Iterable[RelaxItem]) -> list[Relaxed | KhotError]:
        """Relax several items in one call. A bad item has its error in its place, not raised."""
        call = self._connection.khot.Relax

        def send(sent: list[pb.RelaxItem]) -> Any:
            return self._connection.call(call, pb.RelaxRequest(items=sent)).results

        return _many(items, messages.relax_item, pb.RelaxItem, send, messages.relaxed)

    def sample_many(self, items: Iterable[SampleItem]) -> list[Sample | KhotError]:
        """Sample several items in one call. A bad item has its error in its place, not raised."""
        call = self._connection.khot.Sample

        def send(sent: list[pb.SampleItem]) -> Any:
            return self._connection.call(call, pb.SampleRequest(items=sent)).results

        return _many(items, messages.sample_item, pb.SampleItem, send, messages.sample)

    def operators(self) -> list[Operator]:
        """Return the operators that the server has, with what each promises."""
        call = self._connection.khot.ListOperators
        response = self._connection.call(call, pb.ListOperatorsRequest())
        return [messages.operator(row) for row in response.operators]

    def submit(self, spec: FeatureSelection, *, request_id: str | None = None) -> Job:
        """Store a job on the server and return its handle; it runs whatever happens here.

        Args:
            spec: what to do.
            request_id: at most 64 characters; the same one returns the same job and
                stores nothing. None: a new one.
        """
        request = job_pb.SubmitJobRequest(
            request_id=uuid.uuid4().hex if request_id is None else request_id,
            spec=messages.spec_message(spec),
        )
        response = self._connection.call(self._connection.jobs.SubmitJob, request)
        return Job(self._connection, response.job.id)

    def job(self, job_id: str) -> Job:
        """Return the handle of a job by its id, without asking the server."""
        return Job(self._connection, job_id)

    def close(self) -> None:
        """End the connection, and with it the calls under way. Jobs go on."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address!r})"


def _many(
    items: Iterable[Item],
    build: Callable[[Item], Any],
    message_type: type[Any],
    send: Callable[[list[Any]], Sequence[Any]],
    read: Callable[[Any], Outcome | KhotError],
) -> list[Outcome | KhotError]:
    """An outcome for each item, in their order."""
    requests: list[Any] = []
    refused: dict[int, KhotError] = {}
    for index, item in enumerate(items):
        try:
            requests.append(build(item))
        except InvalidRequest as error:
            # An empty message takes its place, so that the server counts as the caller does.
            requests.append(message_type())
            refused[index] = error
    if len(refused) == len(requests):
        return list(refused.values())
    results = send(requests)
    if len(results) != len(requests):
        raise ServerError(f"reply: must have {len(requests)} results; got {len(results)}")
    try:
        return [refused.get(index) or read(result) for index, result in enumerate(results)]
    except ValueError as error:  # a tensor or a mask that contradicts itself
        raise ServerError(f"reply: {error}") from None


def _only(outcomes: list[Outcome | KhotError]) -> Outcome:
    (outcome,) = outcomes
    if isinstance(outcome, KhotError):
        raise outcome
    return outcome

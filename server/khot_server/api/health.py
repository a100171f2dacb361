"""Health: whether each service serves, for load balancers and those who wait for it.

grpc_health has a servicer of its own, but there a watcher that leaves takes the others'
notices with it, and one that is told two changes in a row sees the second alone. Here each
watcher has a queue of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

Response = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """The health of these services, and of the whole, whose name is empty."""

    def __init__(self, services: Iterable[str]) -> None:
        self._status: dict[str, int] = dict.fromkeys(["", *services], Response.NOT_SERVING)
        self._watchers: set[tuple[str, asyncio.Queue[int | None]]] = set()

    def set(self, service: str, serving: bool) -> None:
        """Say whether this service serves; watchers of it are told if that is new."""
        status = Response.SERVING if serving else Response.NOT_SERVING
        if self._status[service] != status:
            self._status[service] = status
            for watched, changes in self._watchers:
                if watched == service:
                    changes.put_nowait(status)

    def close(self) -> None:
        """End all watches, or they would hold up the end of the server."""
        for _, changes in self._watchers:
            changes.put_nowait(None)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Response:  # noqa: N802
        """The status now; NOT_FOUND for a service that is not here."""
        status = self._status.get(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"service: must be one of {sorted(self._status)}; got {request.service!r}",
            )
        return Response(status=status)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[Response]:
        """The status now, and every change of it."""
        changes: asyncio.Queue[int | None] = asyncio.Queue()
        watcher = (request.service, changes)
        self._watchers.add(watcher)
        try:
            status: int | None = self._status.get(request.service, Response.SERVICE_UNKNOWN)
            while status is not None:
                yield Response(status=status)
                status = await changes.get()
        finally:
            self._watchers.discard(watcher)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "server: must be serving; got its end")

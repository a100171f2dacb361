"""Health: every watcher sees every change of its service, whatever the others do."""

import asyncio
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2

from khot_server.api.health import Health

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Aborted(Exception):
    """As gRPC raises."""


async def abort(code: grpc.StatusCode, details: str) -> None:
    raise Aborted(code, details)


CONTEXT = SimpleNamespace(abort=abort)


def watch(health: Health, service: str = ""):
    return health.Watch(health_pb2.HealthCheckRequest(service=service), CONTEXT)


async def status(watcher) -> int:
    return (await anext(watcher)).status


def test_a_watcher_sees_every_change_in_its_order():
    async def run():
        health = Health(["a"])
        watcher = watch(health, "a")
        assert await status(watcher) == NOT_SERVING
        for serving in (True, True, False, True):
            health.set("a", serving)
        health.set("", True)
        assert [await status(watcher) for _ in range(3)] == [SERVING, NOT_SERVING, SERVING]
        health.close()
        with pytest.raises(Aborted, match="got its end"):
            await anext(watcher)

    asyncio.run(run())


def test_a_watcher_who_leaves_takes_nothing_from_the_others():
    async def run():
        health = Health([])
        leaving, staying = watch(health), watch(health)
        assert [await status(leaving), await status(staying)] == [NOT_SERVING, NOT_SERVING]
        await leaving.aclose()
        health.set("", True)
        assert await status(staying) == SERVING
        await staying.aclose()

    asyncio.run(run())


def test_a_service_that_is_not_here():
    async def run():
        health = Health(["a"])
        asked = health_pb2.HealthCheckRequest(service="b")
        with pytest.raises(Aborted, match=r"must be one of \['', 'a'\]; got 'b'"):
            await health.Check(asked, CONTEXT)
        watcher = watch(health, "b")
        assert await status(watcher) == SERVICE_UNKNOWN
        await watcher.aclose()

    asyncio.run(run())

"""The gRPC server of the API process: what it serves, and how it starts and stops."""

import asyncio
import signal

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

DRAIN_S = 10.0


async def serve(address: str) -> None:
    """Serve at `address` until SIGTERM or SIGINT, then drain and return.

    Draining is: health says NOT_SERVING, so that balancers look elsewhere; no new
    call is accepted; calls under way get `DRAIN_S` seconds to finish.

    Args:
        address: `host:port`; port 0 lets the system choose one.

    Raises:
        OSError: the address cannot be bound.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = (health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"khot-server: address must be a free host:port; got {address!r}") from error
    await server.start()
    for name in ("", *names):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    print(f"khot-server: listening on {address.rpartition(':')[0]}:{port}", flush=True)

    await stop.wait()
    print("khot-server: draining", flush=True)
    await servicer.enter_graceful_shutdown()
    await server.stop(DRAIN_S)
    print("khot-server: stopped", flush=True)

"""`python -m khot_server.healthcheck`: exits with 0 if the service on this machine is healthy.

For containers, and whoever else can only run a command. It takes the settings of the service from
the same flags and variables, asks for its health over gRPC, and says in one line what it heard.

Where callers must show a certificate, it has none to show, and looks at the metrics instead: they
tell whether there is an engine, but not that the service drains.
"""

import socket
import ssl
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from khot_server.config import BadSettings, Settings, load

TIMEOUT_S = 5.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
ENGINES = "khot_engine_up "


def main() -> None:
    """Entry point."""
    healthy, text = check(sys.argv[1:])
    print(text)
    sys.exit(0 if healthy else 1)


def check(arguments: Sequence[str]) -> tuple[bool, str]:
    """Whether the service with these settings is healthy, and what it said."""
    try:
        settings = load(arguments)
        look = _by_metrics if settings.tls_client_ca else _by_grpc
        return look(settings)
    except BadSettings as error:
        return False, str(error)
    except grpc.RpcError as error:
        return False, f"healthcheck: must be answered; got {error.code().name}: {error.details()}"
    except OSError as error:
        return False, f"healthcheck: must be answered; got {error}"


def _by_grpc(settings: Settings) -> tuple[bool, str]:
    # no proxy knows our loopback
    options: list[tuple[str, str | int]] = [("grpc.enable_http_proxy", 0)]
    address = near(settings.address)
    if settings.tls_cert is None:
        channel = grpc.insecure_channel(address, options)
    else:
        # Its own certificate is the authority, so no other server can be taken for it.
        name = _name(address, settings.tls_cert)
        options.append(("grpc.ssl_target_name_override", name))
        trusted = grpc.ssl_channel_credentials(settings.tls_cert.read_bytes())
        channel = grpc.secure_channel(address, trusted, options)
    with channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        status = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S).status
    said = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    return status == health_pb2.HealthCheckResponse.SERVING, f"healthcheck: {said}"


def _by_metrics(settings: Settings) -> tuple[bool, str]:
    url = f"http://{near(settings.metrics_address)}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=TIMEOUT_S) as page:
        lines = page.read().decode().splitlines()
    engines = sum(float(line.split()[1]) for line in lines if line.startswith(ENGINES))
    return engines > 0, f"healthcheck: {ENGINES}{engines:g}"


def _name(address: str, certificate: Path) -> str:
    """A name that the server's certificate has, for gRPC wants to see one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it may not be its own issuer
    context.load_verify_locations(certificate)
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as plain,
        context.wrap_socket(plain) as secure,
    ):
        shown = secure.getpeercert() or {}
    names: Any = shown.get("subjectAltName", ())
    return next((str(name).replace("*", "khot", 1) for _, name in names), "")


def near(address: str) -> str:
    """Where to reach, from this machine, what listens at `host:port`."""
    host, _, port = address.rpartition(":")
    return f"{EVERYWHERE.get(host, host)}:{port}"


if __name__ == "__main__":
    main()

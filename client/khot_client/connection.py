"""The connection to a service: address, token, TLS, retries, and calls without gRPC errors.

Retries are gRPC's own, by service config: after UNAVAILABLE only, and only for calls
that may be made twice. Sampling is among them because every item carries a seed, and
submitting because it carries a request id.
"""

import ipaddress
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import grpc

from khot_client.errors import BadSettings, Cancelled, from_rpc_error
from khot_proto.v1.job_service_pb2_grpc import JobServiceStub
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub

DEFAULT_ADDRESS = "127.0.0.1:50551"
MAX_MESSAGE_BYTES = 64 << 20
CLOSE_S = 1.0

_SAFE_TO_REPEAT = {
    "khot.v1.KHotService": ("Relax", "Sample", "ListOperators"),
    "khot.v1.JobService": ("SubmitJob", "GetJob"),
}
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": service, "method": method}
                for service, methods in _SAFE_TO_REPEAT.items()
                for method in methods
            ],
            # At most 1.5 s in all: long enough for an engine to be replaced, and short
            # enough that a wrong address is told at once.
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
_OPTIONS = [
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # gRPC would wait up to two minutes before it tries a restarted server again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


class Connection:
    """A channel with the stubs of both services, and the way to call them."""

    def __init__(
        self,
        address: str | None,
        token: str | None,
        tls: bool | str | os.PathLike[str],
        timeout_s: float | None,
    ) -> None:
        self.address = address or os.environ.get("KHOT_ADDRESS") or DEFAULT_ADDRESS
        self.timeout_s = timeout_s
        token = token or os.environ.get("KHOT_TOKEN")
        loopback = is_loopback(self.address)
        if token and not tls and not loopback:
            raise BadSettings(
                "Client: tls must be on where a token leaves this machine, or anyone on the way "
                f"could read it; got address {self.address!r} without tls"
            )
        self._metadata = _metadata(token)
        options: list[tuple[str, Any]] = list(_OPTIONS)
        if loopback:
            options.append(("grpc.enable_http_proxy", 0))  # no proxy knows our loopback
        if tls:
            credentials = grpc.ssl_channel_credentials(_authorities(tls))
            self._channel = grpc.secure_channel(self.address, credentials, options)
        else:
            self._channel = grpc.insecure_channel(self.address, options)
        self.khot = KHotServiceStub(self._channel)
        self.jobs = JobServiceStub(self._channel)

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """The answer of a unary call.

        Raises:
            KhotError: the call failed.
        """
        try:
            return method(request, timeout=self.timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.address) from None
        except ValueError:  # the only one that gRPC raises here
            raise self._closed() from None

    def stream(
        self, method: Callable[..., Any], request: Any, timeout_s: float | None
    ) -> Iterator[Any]:
        """The answers of a streaming call, as they come; closing the iterator ends the call.

        Raises:
            KhotError: the call failed.
        """
        try:
            call = method(request, timeout=timeout_s, metadata=self._metadata)
        except ValueError:
            raise self._closed() from None
        try:
            yield from call
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.address) from None
        finally:
            call.cancel()

    def close(self) -> None:
        """End the calls that are under way, and the connection."""
        # gRPC waits for all calls to end, and one that Ctrl-C tore out of its hands never
        # does (grpc#19973). So that the user's program ends, the waiting is another thread's.
        closing = threading.Thread(target=self._channel.close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def _closed(self) -> Cancelled:
        return Cancelled("Client: must be open; got one that was closed", code="CANCELLED")


def is_loopback(address: str) -> bool:
    """Whether the host of `host:port` is this machine.

    Raises:
        BadSettings: the address has another form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise BadSettings(
            f"Client: address must be host:port, such as {DEFAULT_ADDRESS}; got {address!r}"
        )
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    if not token:
        return ()
    if not (token.isascii() and token.isprintable()) or " " in token:
        # gRPC would say so too, and show the token
        raise BadSettings("Client: token must be printable ASCII without spaces; got another")
    return (("authorization", f"Bearer {token}"),)


def _authorities(tls: Literal[True] | str | os.PathLike[str]) -> bytes | None:
    """The certificates to trust; None for those of the system."""
    if tls is True:
        return None
    try:
        return Path(os.fspath(tls)).read_bytes()
    except OSError as error:
        raise BadSettings(
            f"Client: tls must be True or the path of a PEM file; got {str(tls)!r}, "
            f"{error.strerror}"
        ) from None

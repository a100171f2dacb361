"""The channel to a service, of either kind: TLS, token, retries, and the methods by name.

Retries are gRPC's own, by service config: after UNAVAILABLE only, and only for calls
that may be made twice. Draws are among them because every item carries a seed, and
submitting because it carries a request id. Trying a job again and deleting are not:
done twice they are an error, or another attempt.
"""

import json
from collections.abc import Callable
from typing import Any

import grpc

from khot_client.errors import BadSettings, Cancelled, KhotError, from_rpc_error
from khot_client.settings import Settings
from khot_proto.v1.artifact_service_pb2_grpc import ArtifactServiceStub
from khot_proto.v1.dataset_service_pb2_grpc import DatasetServiceStub
from khot_proto.v1.job_service_pb2_grpc import JobServiceStub
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub

MAX_MESSAGE_BYTES = 64 << 20
_STUBS = (KHotServiceStub, JobServiceStub, DatasetServiceStub, ArtifactServiceStub)

SAFE_TO_REPEAT = {
    "khot.v1.KHotService": ("Relax", "RelaxVjp", "Sample", "SampleVjp", "ListOperators"),
    "khot.v1.JobService": (
        "SubmitJob",
        "GetJob",
        "ListJobs",
        "CancelJob",
        "PauseJob",
        "ResumeJob",
        "ListAttempts",
        "GetMetrics",
        "GetLogs",
        "SubmitGroup",
        "GetGroup",
        "CancelGroup",
    ),
    "khot.v1.DatasetService": ("GetUpload", "GetDataset", "ListDatasets"),
    "khot.v1.ArtifactService": ("ListArtifacts",),
}
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": service, "method": method}
                for service, methods in SAFE_TO_REPEAT.items()
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
# A server that is gone without a word (its machine, or the way to it) would hold a watch for
# ever. So while there are calls, a silent connection is asked, and closed if it does not answer:
# its calls are UNAVAILABLE then. The server allows to be asked every 10 s.
ASKED_AFTER_S, ANSWERED_WITHIN_S = 20.0, 20.0
LONGEST_S = 3.2e7  # a year; gRPC takes much more for no time at all

Metadata = tuple[tuple[str, str], ...]


class Endpoint:
    """What the two kinds of connection have in common.

    Args:
        settings: where the service is.
        timeout_s: how long a call may take, retries included; None for no limit.

    Raises:
        BadSettings: the time is none.
    """

    def __init__(self, settings: Settings, timeout_s: float | None) -> None:
        self.settings, self.address = settings, settings.address
        self._metadata = metadata(settings)
        self._limit: float | None = None
        self._limit = self.limit(timeout_s)

    def limit(self, timeout_s: float | None) -> float | None:
        """The time limit of a call, as gRPC wants it.

        Raises:
            BadSettings: the time is none.
        """
        if timeout_s is None:
            return self._limit
        given: Any = timeout_s
        if isinstance(given, str) or not given > 0:  # nor is NaN
            must = "must be seconds above 0, or None"
            raise BadSettings(f"Client: timeout_s {must}; got {timeout_s!r}")
        return timeout_s if timeout_s < LONGEST_S else None

    def told(self, error: grpc.RpcError) -> KhotError:
        """Ours for an error of gRPC."""
        return from_rpc_error(error, self.address)


def open_channel(settings: Settings, kind: Any) -> Any:
    """A channel of `grpc` or `grpc.aio`."""
    options: list[tuple[str, Any]] = [*_OPTIONS, *_keepalive()]
    if settings.loopback:
        options.append(("grpc.enable_http_proxy", 0))  # no proxy knows our loopback
    if not settings.tls:
        return kind.insecure_channel(settings.address, options)
    credentials = grpc.ssl_channel_credentials(
        settings.authorities, settings.key, settings.certificate
    )
    return kind.secure_channel(settings.address, credentials, options)


def _keepalive() -> list[tuple[str, int]]:
    within = round(1000 * ANSWERED_WITHIN_S)
    return [
        ("grpc.keepalive_time_ms", round(1000 * ASKED_AFTER_S)),
        ("grpc.keepalive_timeout_ms", within),
        ("grpc.http2.ping_timeout_ms", within),  # the one that counts as of gRPC 1.85
        ("grpc.http2.max_pings_without_data", 0),  # no end to the asking
    ]


def methods_of(channel: Any) -> dict[str, Callable[..., Any]]:
    """The methods of all services by name."""
    return {name: method for stub in _STUBS for name, method in vars(stub(channel)).items()}


def metadata(settings: Settings) -> Metadata:
    """What is sent with every call."""
    return (("authorization", f"Bearer {settings.token}"),) if settings.token else ()


def closed() -> Cancelled:
    """What a closed client says."""
    return Cancelled("Client: must be open; got one that was closed", code="CANCELLED")

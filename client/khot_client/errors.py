"""The exceptions of the client, and the one table from status to exception.

    KhotError
    +-- BadSettings            the client itself is set up wrongly; no call was made
    +-- RequestError           FAILED_PRECONDITION   refused, and would be again
    |   +-- InvalidRequest     INVALID_ARGUMENT      .field says which part
    |   +-- NotFound           NOT_FOUND
    |   +-- AlreadyExists      ALREADY_EXISTS
    |   +-- Unauthenticated    UNAUTHENTICATED
    |   +-- PermissionDenied   PERMISSION_DENIED
    |   +-- TooLarge           RESOURCE_EXHAUSTED    a message over the limit
    +-- Overloaded             RESOURCE_EXHAUSTED    .retry_after_s says when to come back;
    |                          also ABORTED          another call is at the same thing
    +-- Unavailable            UNAVAILABLE           no server, or one that is going down
    +-- TlsFailed              UNAVAILABLE           a server, and no trust between it and us
    +-- DeadlineExceeded       DEADLINE_EXCEEDED
    +-- Cancelled              CANCELLED             the client was closed under the call
    +-- VersionMismatch        UNIMPLEMENTED         the server does not know this call
    +-- ServerError            every other code      a fault on the other side
    +-- TransferFailed         a file here cannot be read or written, or came damaged
    +-- JobFailed              the call went well, the job did not; .kind says why

No gRPC exception leaves the client: `from_rpc_error` makes one of these of it. The text
of an error is its message and, where the message does not say so itself, what to do next.
"""

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, ClassVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


class KhotError(Exception):
    """Whatever went wrong between this client and a khot service.

    Attributes:
        message: what it must be, and what it was.
        code: name of the gRPC status, such as `NOT_FOUND`; empty if no call was made.
        reason: the server's name for the error, such as `QUEUE_FULL`; empty if it did
            not come from a khot server.
        field: path of what is wrong in the request, such as `items[0].k`, if it is known.
        retry_after_s: when the server asks to be called again, if it said so.
    """

    advice: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: str = "",
        field: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.reason = message, code, reason
        self.field, self.retry_after_s = field, retry_after_s

    def __str__(self) -> str:
        return f"{self.message}. {self.advice}" if self.advice else self.message


def _later(error: KhotError) -> str:
    """The text of an error of a server that is there, and will answer another time."""
    return f"{error.message}. Call again in {error.retry_after_s or 1:g} s."


class BadSettings(KhotError):
    """An address, token or certificate that cannot be used; the message says what must be."""


class RequestError(KhotError):
    """A request that the server refuses, and would refuse again."""


class InvalidRequest(RequestError):
    """A request that cannot be meant so; `field` is the path to what is wrong with it."""


class NotFound(RequestError):
    """There is no such thing, or it belongs to another tenant."""

    advice = "Check the id, and that address and token are those it was made with."


class AlreadyExists(RequestError):
    """The request id was used before, for another request."""

    advice = "Use a new request id, or none."


class Unauthenticated(RequestError):
    """No token, or one that the server does not know."""

    advice = "Set KHOT_TOKEN or pass token=; `khot-server new-token` makes one."


class PermissionDenied(RequestError):
    """A known token that may not make this call."""

    advice = "Ask whoever runs the server for a token with this scope."


class TooLarge(RequestError):
    """A request or a reply that is larger than a message may be."""

    advice = "Send fewer rows at a time."


class Overloaded(KhotError):
    """More is waiting than the server takes on, or than this tenant may have there; or another
    call is at the same thing.
    """

    def __str__(self) -> str:
        return _later(self)


class Unavailable(KhotError):
    """No server answers there, or it is starting or going down."""

    advice = "Check address and tls=; `khot up` starts a server on this machine."

    def __str__(self) -> str:
        return super().__str__() if self.retry_after_s is None else _later(self)


class TlsFailed(KhotError):
    """There is a server, but the two sides do not trust each other."""

    advice = (
        "Check tls= and the dates and names of the certificates; "
        "whoever runs the server can renew its own."
    )


class DeadlineExceeded(KhotError):
    """The answer did not come in time."""

    advice = "Allow more time with timeout_s, or ask for less at once."


class Cancelled(KhotError):
    """The client was closed before the answer came."""

    advice = "Make the call before close(), or with a new Client."


class VersionMismatch(KhotError):
    """A call that the server does not know: client and server are of different versions."""

    advice = "Install the same version of khot on both sides; `khot info` shows the one here."


class ServerError(KhotError):
    """A fault of the server, or an answer that this client cannot read."""

    advice = "Its log has more; `khot info` shows what to put into a report."


class TransferFailed(KhotError):
    """A file of this machine that cannot be read or written, or one that came damaged."""


class JobFailed(KhotError):
    """A job that ended without a result.

    Attributes:
        kind: why, such as `DIVERGED` or `OUT_OF_MEMORY`; `CANCELLED` if it was asked to end.
    """

    advice = "Its logs() say more; retry() goes on from its last checkpoint."

    def __init__(self, message: str, *, kind: str = "INTERNAL") -> None:
        super().__init__(message)
        self.kind = kind


_BY_CODE: dict[str, type[KhotError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "FAILED_PRECONDITION": RequestError,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": Overloaded,
    "ABORTED": Overloaded,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "UNIMPLEMENTED": VersionMismatch,
}
# What TLS says when it fails, which gRPC tells of as of a server that is not there.
_TLS = re.compile("handshake|certificate|hostname verification", re.IGNORECASE)
_TLS_REASON = re.compile("CERTIFICATE_VERIFY_FAILED: ([^:]+)")
_PLAIN = "WRONG_VERSION_NUMBER"


def from_status(code: int, message: str, details: Iterable[AnyMessage] = ()) -> KhotError:
    """The exception for a status with google.rpc details, of a call or of one of its items."""
    name = _NAMES.get(code, "UNKNOWN")
    reason, field, retry_after_s = "", "", None
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in details:
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(bad_request):
            field = next((violation.field for violation in bad_request.field_violations), "")
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToNanoseconds() / 1e9
    error_type = _BY_CODE.get(name, ServerError)
    if name == "RESOURCE_EXHAUSTED" and retry_after_s is None:
        error_type = TooLarge  # gRPC's own refusal; waiting would not make the message smaller
    return error_type(message, code=name, reason=reason, field=field, retry_after_s=retry_after_s)


def from_rpc_error(error: grpc.RpcError, address: str) -> KhotError:
    """The exception for a call that failed, of either kind of stub."""
    # What the stubs raise is a grpc.Call too, in all versions; the base class does not say so.
    code: grpc.StatusCode = error.code()
    trailing: Any = error.trailing_metadata()  # pairs, in both kinds
    metadata = dict(trailing or ())
    status = status_pb2.Status()
    try:
        status.ParseFromString(metadata.get("grpc-status-details-bin", b""))
    except DecodeError:
        status.Clear()  # the code and the message are still there
    message = error.details() or code.name
    if not status.details:  # from the transport, which names neither itself nor the server
        return _from_transport(code, message.rstrip("."), address)
    return from_status(code.value[0], message, status.details)


def _from_transport(code: grpc.StatusCode, got: str, address: str) -> KhotError:
    if code is grpc.StatusCode.UNAVAILABLE and _TLS.search(got):
        must = "must have a certificate that this client trusts"
        reason = "a server without TLS" if _PLAIN in got else _tls_reason(got)
        return TlsFailed(f"{address}: {must}; got {reason}", code=code.name)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        ours = version("khot")
        must = f"must be a server that knows the calls of khot {ours}, as this client does"
        return VersionMismatch(f"{address}: {must}; got {got}", code=code.name)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return TooLarge(f"{address}: messages must be in its limits; got {got}", code=code.name)
    return from_status(code.value[0], f"{address}: must be a khot server that answers; got {got}")


def _tls_reason(text: str) -> str:
    """What was wrong, out of a chain of errors of many words."""
    if "Hostname" in text:
        return "one for another host"
    found = _TLS_REASON.search(text)
    return found[1] if found else text

"""The errors of the service, and the one table from error to status.

    ServiceError
    +-- InvalidArgument      INVALID_ARGUMENT     BadRequest with the field's path
    +-- Unauthenticated      UNAUTHENTICATED
    +-- PermissionDenied     PERMISSION_DENIED
    +-- NotFound             NOT_FOUND            ResourceInfo
    +-- AlreadyExists        ALREADY_EXISTS       ResourceInfo
    +-- FailedPrecondition   FAILED_PRECONDITION  PreconditionFailure
    +-- Aborted              ABORTED              RetryInfo
    +-- QueueFull            RESOURCE_EXHAUSTED   RetryInfo
    +-- TooManyCalls         RESOURCE_EXHAUSTED   RetryInfo
    +-- QuotaExceeded        RESOURCE_EXHAUSTED   RetryInfo
    +-- DeadlineExceeded     DEADLINE_EXCEEDED
    +-- BatchTooLong         DEADLINE_EXCEEDED
    +-- StoreUnavailable     UNAVAILABLE          RetryInfo
    +-- Draining             UNAVAILABLE          RetryInfo
    +-- EngineUnavailable    UNAVAILABLE          RetryInfo
    +-- EngineDied           UNAVAILABLE          RetryInfo
    +-- EngineFailed         INTERNAL
    +-- Internal             INTERNAL

Every status carries an ErrorInfo whose reason is the name of the error in capitals, so
that a client can tell them apart without reading the message.
"""

import re
from typing import ClassVar

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2

from khot_proto.v1.khot_service_pb2 import ItemStatus

DOMAIN = "khot"


class ServiceError(Exception):
    """Something that a caller is told, in the form `who: what it must be; got what it was`."""

    code: ClassVar[int] = code_pb2.INTERNAL
    retry_after_s: ClassVar[float | None] = None

    @property
    def reason(self) -> str:
        """The name of the error, QUEUE_FULL for QueueFull."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).upper()

    def details(self) -> list[Message]:
        """The google.rpc messages that go with it."""
        found: list[Message] = [error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN)]
        if self.retry_after_s is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(round(self.retry_after_s * 1000))
            found.append(retry)
        return found


class InvalidArgument(ServiceError):
    """A request that cannot be meant so; `field` is the path to what is wrong with it."""

    code = code_pb2.INVALID_ARGUMENT

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

    def details(self) -> list[Message]:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=self.field, description=str(self)
        )
        return [*super().details(), error_details_pb2.BadRequest(field_violations=[violation])]


class Unauthenticated(ServiceError):
    """No token, or one that is not known."""

    code = code_pb2.UNAUTHENTICATED


class PermissionDenied(ServiceError):
    """A known token without the scope that the call needs."""

    code = code_pb2.PERMISSION_DENIED


class _Resource(ServiceError):
    def __init__(self, kind: str, name: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.name = kind, name

    def details(self) -> list[Message]:
        info = error_details_pb2.ResourceInfo(resource_type=self.kind, resource_name=self.name)
        return [*super().details(), info]


class NotFound(_Resource):
    """This tenant has no such thing."""

    code = code_pb2.NOT_FOUND


class AlreadyExists(_Resource):
    """The name is taken by something else."""

    code = code_pb2.ALREADY_EXISTS


class FailedPrecondition(ServiceError):
    """What `subject` is in now does not allow it."""

    code = code_pb2.FAILED_PRECONDITION

    def __init__(self, subject: str, message: str) -> None:
        super().__init__(message)
        self.subject = subject

    def details(self) -> list[Message]:
        violation = error_details_pb2.PreconditionFailure.Violation(
            type="STATE", subject=self.subject, description=str(self)
        )
        return [*super().details(), error_details_pb2.PreconditionFailure(violations=[violation])]


class Aborted(ServiceError):
    """Another call is at the same thing."""

    code = code_pb2.ABORTED
    retry_after_s = 1.0


class QueueFull(ServiceError):
    """More is under way to the engines than may be."""

    code = code_pb2.RESOURCE_EXHAUSTED
    retry_after_s = 0.1


class TooManyCalls(ServiceError):
    """The caller has as many calls under way as it may have."""

    code = code_pb2.RESOURCE_EXHAUSTED
    retry_after_s = 0.1


class QuotaExceeded(ServiceError):
    """The tenant has as much of something as it may have."""

    code = code_pb2.RESOURCE_EXHAUSTED
    retry_after_s = 60.0


class DeadlineExceeded(ServiceError):
    """The caller's deadline passed before an engine was free; nothing was computed."""

    code = code_pb2.DEADLINE_EXCEEDED


class BatchTooLong(ServiceError):
    """A batch took so long that its engine was given up. Not to be tried again as it is."""

    code = code_pb2.DEADLINE_EXCEEDED


class StoreUnavailable(ServiceError):
    """The disk is full, cannot be written, or is locked by another; nothing was stored."""

    code = code_pb2.UNAVAILABLE
    retry_after_s = 5.0


class Draining(ServiceError):
    """The server is going down and takes no new work."""

    code = code_pb2.UNAVAILABLE
    retry_after_s = 5.0


class EngineUnavailable(ServiceError):
    """No engine is there yet, or again."""

    code = code_pb2.UNAVAILABLE
    retry_after_s = 1.0


class EngineDied(ServiceError):
    """The engine died under this very request; a new one is being started."""

    code = code_pb2.UNAVAILABLE
    retry_after_s = 1.0


class EngineFailed(ServiceError):
    """The engine lives, but the library failed in a batch, or ran out of memory."""

    code = code_pb2.INTERNAL


class Internal(ServiceError):
    """A fault of ours; the log has the rest."""

    code = code_pb2.INTERNAL


def packed_details(error: ServiceError) -> list[AnyMessage]:
    """The details of an error as they travel."""
    packed = []
    for detail in error.details():
        any_message = AnyMessage()
        any_message.Pack(detail)
        packed.append(any_message)
    return packed


def item_status(error: ServiceError) -> ItemStatus:
    """The status of one item of a request."""
    return ItemStatus(code=error.code, message=str(error), details=packed_details(error))

"""Statuses become exceptions, each with what the server said about it."""

import pickle

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2

import khot_client
from khot_client import errors
from khot_server import errors as server_errors

REFUSALS = {
    server_errors.InvalidArgument("items[0].k", "items[0].k: must be 1"): errors.InvalidRequest,
    server_errors.Unauthenticated("no"): errors.Unauthenticated,
    server_errors.PermissionDenied("no"): errors.PermissionDenied,
    server_errors.NotFound("job", "7", "no"): errors.NotFound,
    server_errors.AlreadyExists("job", "7", "no"): errors.AlreadyExists,
    server_errors.FailedPrecondition("jobs/7", "no"): errors.RequestError,
    server_errors.Aborted("no"): errors.Overloaded,
    server_errors.StoreUnavailable("no"): errors.Unavailable,
    server_errors.QueueFull("no"): errors.Overloaded,
    server_errors.QuotaExceeded("no"): errors.Overloaded,
    server_errors.TooManyCalls("no"): errors.Overloaded,
    server_errors.DeadlineExceeded("no"): errors.DeadlineExceeded,
    server_errors.BatchTooLong("no"): errors.DeadlineExceeded,
    server_errors.Draining("no"): errors.Unavailable,
    server_errors.EngineUnavailable("no"): errors.Unavailable,
    server_errors.EngineDied("no"): errors.Unavailable,
    server_errors.EngineFailed("no"): errors.ServerError,
    server_errors.Internal("no"): errors.ServerError,
}


def subclasses(cls: type) -> set[type]:
    return {cls} | {below for child in cls.__subclasses__() for below in subclasses(child)}


@pytest.mark.parametrize(
    ("sent", "wanted"), REFUSALS.items(), ids=lambda value: getattr(value, "reason", "")
)
def test_every_error_of_the_server_has_its_exception(sent, wanted):
    got = errors.from_status(sent.code, str(sent), server_errors.packed_details(sent))
    assert type(got) is wanted
    assert (got.message, got.reason) == (str(sent), sent.reason)
    assert got.retry_after_s == sent.retry_after_s
    assert got.field == getattr(sent, "field", "")
    assert got.code in {code.name for code in grpc.StatusCode}


def test_no_error_of_the_server_was_forgotten():
    leaves = {cls for cls in subclasses(server_errors.ServiceError) if not cls.__subclasses__()}
    assert {type(error) for error in REFUSALS} == leaves


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.value[0]], ids=str)
def test_every_code_has_an_exception(code):
    got = errors.from_status(code.value[0], "it: must be so; got else")
    assert isinstance(got, errors.KhotError) and got.code == code.name


def test_exhausted_without_a_time_to_retry_is_too_large():
    got = errors.from_status(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], "larger than max")
    assert type(got) is errors.TooLarge


def test_details_of_another_kind_are_passed_over():
    other = AnyMessage()
    other.Pack(error_details_pb2.Help())
    got = errors.from_status(grpc.StatusCode.INTERNAL.value[0], "no", [other])
    assert (got.reason, got.field, got.retry_after_s) == ("", "", None)


def test_the_text_says_what_to_do_next():
    assert str(errors.Unavailable("x: must be y; got z")).startswith("x: must be y; got z. Check")
    full = errors.Overloaded("queue: must have room; got none", retry_after_s=0.1)
    assert str(full).endswith("got none. Call again in 0.1 s.")
    assert str(errors.InvalidRequest("x: must be y; got z")) == "x: must be y; got z"


def test_a_message_over_the_limit_is_not_told_as_a_server_that_is_away():
    late = grpc.aio.AioRpcError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(),
        details="CLIENT: Sent message larger than max (2 vs. 1)",
    )
    error = errors.from_rpc_error(late, "here:1")
    assert isinstance(error, errors.TooLarge) and "messages must be in its limits; got" in str(
        error
    )


def test_errors_can_cross_processes():
    error = errors.Overloaded("no", code="RESOURCE_EXHAUSTED", retry_after_s=0.1)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.Overloaded and vars(copy) == vars(error)
    failed = pickle.loads(pickle.dumps(errors.JobFailed("no", kind="DIVERGED")))
    assert failed.kind == "DIVERGED"


def test_the_tree_on_top_of_the_file_is_true_and_public():
    for cls in subclasses(errors.KhotError):
        assert cls.__name__ in errors.__doc__
        assert getattr(khot_client, cls.__name__) is cls

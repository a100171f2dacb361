"""Every error has a place in the table, and tells the caller who, what and how to go on."""

import inspect

import pytest
from google.rpc import code_pb2, error_details_pb2

from khot_server import errors

ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, errors.ServiceError)
    and error is not errors.ServiceError
    and not error.__name__.startswith("_")
]


def make(error: type[errors.ServiceError]) -> errors.ServiceError:
    if issubclass(error, errors._Resource):
        return error("job", "j1", "job: must exist; got j1")
    if issubclass(error, errors.InvalidArgument):
        return error("items[0].k", "items[0].k: must be a number; got none")
    if issubclass(error, errors.FailedPrecondition):
        return error("jobs/j1", "job j1: must be PAUSED to be resumed; got FAILED")
    return error("who: must be; got")


@pytest.mark.parametrize("error", ERRORS)
def test_the_table_at_the_top_is_true(error):
    (line,) = (line for line in errors.__doc__.splitlines() if f"+-- {error.__name__} " in line)
    _, name, code, *details = line.split()
    assert name == error.__name__
    assert code == code_pb2.Code.Name(error.code)
    kinds = [type(detail).__name__ for detail in make(error).details()]
    assert kinds[0] == "ErrorInfo"
    assert (details[0] if details else None) == (kinds[1] if len(kinds) > 1 else None)


def test_the_table_at_the_top_is_whole():
    listed = [line.split()[1] for line in errors.__doc__.splitlines() if "+--" in line]
    assert sorted(listed) == sorted(error.__name__ for error in ERRORS)


def test_reasons_are_names_in_capitals():
    assert make(errors.QueueFull).reason == "QUEUE_FULL"
    assert make(errors.InvalidArgument).reason == "INVALID_ARGUMENT"


def test_details_travel():
    status = errors.item_status(make(errors.InvalidArgument))
    request = error_details_pb2.BadRequest()
    assert status.details[1].Unpack(request)
    assert request.field_violations[0].field == "items[0].k"

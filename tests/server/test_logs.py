"""The log of a real server: JSON lines that tell of calls and jobs, and of nobody's secrets."""

import json
import os
import subprocess
import sys

import grpc
import jobs
import numpy as np
import pytest
from processes import wait_until

from khot_proto import to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_server.api.identity import new_token

# As text and as the bytes of a tensor, should either be printed.
MARKER = 1234567.875
MARKS = (
    "1234567.875",
    "1.23456",
    np.float32(MARKER).tobytes().hex(),
    repr(np.float32(MARKER).tobytes())[2:-1],
)


def request(*rows: float, k: float = 2) -> pb.RelaxRequest:
    scores = to_tensor(np.array([rows], np.float32))
    return pb.RelaxRequest(items=[pb.RelaxItem(operator="sigmoid_topk", scores=scores, k=[k])])


def lines_of(server) -> list[dict]:
    """What it logged; the settings, which it prints before, are no log."""
    others = ("khot-server: ", "<end>")
    return [json.loads(line) for line in server.lines if not line.startswith(others)]


def passings(server) -> list[dict]:
    return [line for line in lines_of(server) if line["event"] == "job_passed"]


@pytest.fixture
def talking(start, tmp_path):
    """A server that logs all it can, and a token for it."""
    token, entry = new_token("vision", ("sample", "jobs"))
    (tmp_path / "tokens.toml").write_text(entry)
    flags = ("--tokens", str(tmp_path / "tokens.toml"), "--log-level", "debug")
    return start(*flags, KHOT_LOG_FORMAT="json").wait_until_serving(), token


def test_at_debug_level_calls_and_jobs_are_told_of_and_no_secrets(talking):
    server, token = talking
    mine = (("authorization", f"Bearer {token}"), ("x-request-id", "call-7"))
    answer, call = server.khot.Relax.with_call(
        request(MARKER, 1, -MARKER, 2), metadata=mine, timeout=30
    )
    assert answer.results[0].status.code == 0
    assert dict(call.trailing_metadata())["x-request-id"] == "call-7"
    refused = request(MARKER, float("nan"), 1)
    assert server.khot.Relax(refused, metadata=mine[:1], timeout=30).results[0].status.code
    stolen = f"Bearer {token}x"
    with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
        server.khot.Relax(request(1, 2, 3), metadata=(("authorization", stolen),), timeout=30)
    submitted = jobs.pb.SubmitJobRequest(request_id="r", spec=jobs.selection(dataset="digits"))
    job = server.jobs.SubmitJob(submitted, metadata=mine, timeout=30).job
    wait_until(lambda: len(passings(server)) >= 3, "the job's end")
    assert server.stop() == 0

    lines, passed = lines_of(server), passings(server)
    assert {line["process"] for line in lines} >= {"api", "runner"}
    assert [line["state"] for line in passed] == ["QUEUED", "RUNNING", "SUCCEEDED"]
    told = [line for line in lines if "job" in line]
    assert {"attempt_started", "attempt_ended", "job_passed"} == {line["event"] for line in told}
    assert {(line["job"], line["tenant"]) for line in told} == {(job.id, "vision")}
    relaxed = [line for line in lines if line["event"] == "call" and line["method"] == "Relax"]
    assert [line["code"] for line in relaxed] == ["OK", "OK", "UNAUTHENTICATED"]
    assert relaxed[0]["request_id"] == "call-7" and relaxed[0]["tenant"] == "vision"
    assert len({line["request_id"] for line in relaxed}) == 3 and "tenant" not in relaxed[2]
    assert all(line["level"] == "debug" and line["seconds"] > 0 for line in relaxed)
    said = "\n".join(server.lines)
    assert token not in said and not [mark for mark in MARKS if mark in said]


TWO_LEVELS = """
structlog.get_logger().debug('small', n=1)
structlog.get_logger().warning('large', n=2)
"""
LIBRARIES = """
logging.getLogger('asyncio').info('as usual')
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger('asyncio').exception('task %s failed', 7)
warnings.warn('old')
"""
FAULT = """
def tell(secret):
    try:
        1 / 0
    except ZeroDivisionError:
        structlog.get_logger().exception('fault')

tell('of a tena' + 'nt')
"""
SHARED = """
import os
by = int(os.fork() == 0)
for _ in range(2000):
    structlog.get_logger().info('line', by=by)
if by == 0:
    os.wait()
"""


def logged(
    form: str, level: str, does: str = TWO_LEVELS, stderr: int = subprocess.PIPE, **more: str
) -> list[str]:
    """The lines of a process that does this, to a pipe."""
    program = (
        "import logging, warnings\n"
        "import structlog\n"
        "from khot_server import logs\n"
        f"logs.configure('p')\n{does}"
    )
    environment = {**os.environ, "KHOT_LOG_FORMAT": form, "KHOT_LOG_LEVEL": level, **more}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True, env=environment
    )
    assert not done.stdout
    return (done.stderr or "").splitlines()


@pytest.mark.parametrize("form", ["auto", "json"])
def test_lines_are_json_where_no_terminal_is(form):
    (line,) = map(json.loads, logged(form, "info"))
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "large", "n": 2, "level": "warning", "process": "p"}


def test_what_libraries_warn_of_has_lines_too():
    """They know nothing of structlog, and whoever reads the log needs it to be JSON throughout."""
    failed, warned = map(json.loads, logged("json", "debug", LIBRARIES))
    assert (failed["event"], failed["level"], failed["process"]) == ("task 7 failed", "error", "p")
    assert "ZeroDivisionError" in failed["exception"] and failed["timestamp"].endswith("Z")
    assert "UserWarning: old" in warned["event"] and warned["level"] == "warning"
    assert len(logged("json", "error", LIBRARIES)) == 1


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_tells_no_values(form):
    said = "\n".join(logged(form, "info", FAULT))
    assert "fault" in said and "ZeroDivisionError" in said
    assert "of a tenant" not in said and "UserWarning" not in said


def test_lines_are_for_people_if_they_ask():
    (line,) = logged("console", "info")
    assert "large" in line and "n=2" in line and "\x1b" not in line


def test_lines_are_for_people_on_a_terminal():
    ours, terminal = os.openpty()
    try:
        logged("auto", "info", stderr=terminal)
        line = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(terminal)
    assert "large" in line and "\x1b[" in line and not line.startswith("{")


@pytest.mark.parametrize(
    ("level", "events"), [("debug", 2), ("info", 1), ("warning", 1), ("error", 0)]
)
def test_the_level_decides_what_is_told(level, events):
    assert len(logged("json", level)) == events


def test_lines_of_processes_that_share_a_pipe_stay_whole():
    """Unbuffered, as images set it, a line in two writes has those of others in between."""
    lines = logged("json", "info", SHARED, PYTHONUNBUFFERED="1")
    assert sorted(json.loads(line)["by"] for line in lines) == [0] * 2000 + [1] * 2000

"""A real server for tests: the whole process tree, on free ports, with a directory of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from khot_proto.v1.artifact_service_pb2_grpc import ArtifactServiceStub
from khot_proto.v1.dataset_service_pb2_grpc import DatasetServiceStub
from khot_proto.v1.job_service_pb2_grpc import JobServiceStub
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub
from khot_server.config import Settings

START_S, STOP_S = 60.0, 60.0
# The settings of whoever runs this are for another server.
THEIRS = {f"KHOT_{name.upper()}" for name in Settings.model_fields}


class ServerFailed(Exception):
    """The server did not start or did not stop as it should; holds its output."""


class Server:
    """`python -m khot_server` as a child process, and stubs to call it.

    Attributes:
        process: the supervisor.
        lines: what it has printed.
        address: of gRPC, host:port.
        metrics_url: of the metrics.
    """

    def __init__(self, state_dir: Path, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "khot_server", "--state-dir", str(state_dir)]
        flags = ("--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
        # most servers here live for seconds, and would load torch three times
        flags += ("--spare-engine", "false", "--warm-attempts", "false")
        ours = {name: value for name, value in os.environ.items() if name not in THEIRS}
        ours["KHOT_LOG_FORMAT"] = "console"  # whoever reads it here, reads lines as people do
        self.process = subprocess.Popen(
            [*command, *flags, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=ours | environment,
            # so that Ctrl-C reaches us first, who then stop it, and that all of it can be killed
            start_new_session=True,
        )
        self.channel: grpc.Channel | None = None
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            found = self.wait_for_line(r"listening on (\S+), metrics on (\S+)")
        except BaseException:
            self.end()
            raise
        self.metrics_url = found[2]
        self.connect(found[1])

    def connect(self, address: str) -> None:
        """Call it at this address from now on."""
        self.address = address
        # no proxy knows our loopback
        self.channel = grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
        self.khot = KHotServiceStub(self.channel)
        self.jobs = JobServiceStub(self.channel)
        self.datasets = DatasetServiceStub(self.channel)
        self.artifacts = ArtifactServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def _read(self) -> None:
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line.rstrip())
                self._said.notify_all()
        with self._said:
            self.lines.append("<end>")
            self._said.notify_all()

    def failed(self, what: str) -> ServerFailed:
        """What to raise, with all that it said."""
        return ServerFailed("\n".join([what, *self.lines]))

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """The first line of its output that fits."""

        def found() -> re.Match[str] | bool:
            matches = (re.search(pattern, line) for line in self.lines)
            return next((m for m in matches if m), None) or "<end>" in self.lines

        with self._said:
            match = self._said.wait_for(found, START_S)
        if not isinstance(match, re.Match):
            raise self.failed(f"the server did not say {pattern!r}:")
        return match

    def wait_until_serving(self) -> "Server":
        """Return once health says SERVING."""
        try:
            for answer in self.health.Watch(health_pb2.HealthCheckRequest(), timeout=START_S):
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return self
        except grpc.RpcError as error:
            raise self.failed(f"no health, {error.code().name}:") from None
        raise self.failed("health ended:")

    def is_serving(self, service: str = "") -> bool:
        """Whether health says so now."""
        try:
            answer = self.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        except grpc.RpcError:
            return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    def metric(self, pattern: str) -> float:
        """The value of the only series that fits."""
        with urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=10) as page:
            text = page.read().decode()
        found = re.search(rf"^{pattern} (\S+)$", text, re.MULTILINE)
        assert found, text
        return float(found[1])

    def in_flight(self, method: str) -> float:
        """How many calls of this method are under way."""
        return self.metric(rf'khot_requests_in_flight\{{method="{method}"\}}')

    def pids(self) -> dict[str, int]:
        """The live processes of the service, by what they run."""
        return {name: pid for pid, name in descendants(self.process.pid)}

    def engines(self) -> list[int]:
        """The live engines."""
        return sorted(pid for pid, name in descendants(self.process.pid) if name == "engine")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; return its exit status."""
        self.channel.close()
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def end(self) -> None:
        """However it was left, nothing stays."""
        if self.channel is not None:
            self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()  # ends when the last process that could write has ended
        self.process.stdout.close()


@contextlib.contextmanager
def running_server(*arguments: str) -> Iterator[Server]:
    """A server that serves, with a temporary directory of its own; it must stop with 0.

    Raises:
        ServerFailed: it did not start, or did not stop as it should.
    """
    with tempfile.TemporaryDirectory(prefix="khot-") as directory:
        # torch leaves a cache in the temporary directory
        server = Server(Path(directory) / "state", *arguments, TMPDIR=directory)
        try:
            try:
                yield server.wait_until_serving()
            finally:
                status = server.stop()
        finally:
            server.end()
        if status:
            raise server.failed(f"the server ended with {status}:")


def descendants(root: int) -> list[tuple[int, str]]:
    """(pid, module) of every process below `root`."""
    parents: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            if stat[0] == "Z":
                continue
            parents.setdefault(int(stat[1]), []).append(pid)
            commands[pid] = (entry / "cmdline").read_text().replace("\0", " ")
    found, todo = [], [root]
    while todo:
        children = parents.get(todo.pop(), [])
        todo += children
        found += [(pid, _module(commands[pid])) for pid in children if pid in commands]
    # what a nursery has forked looks as it does
    nurseries = {pid for pid, name in found if name == "nursery"}
    forked = {child for pid in nurseries for child in parents.get(pid, ())}
    return [(pid, "attempt" if pid in forked else name) for pid, name in found]


def _module(command: str) -> str:
    known = {"api.app": "api", "worker.process": "engine", "jobs.runner": "runner"}
    known["jobs.nursery"] = "nursery"
    for part, name in known.items():
        if f"khot_server.{part}" in command:
            return name
    return "tracker" if "resource_tracker" in command else "attempt"


def alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_s(pid: int, *, children: bool = False) -> float:
    """The processor time that a process has had; with that of children that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def stopped_engine(server: Server) -> Iterator[None]:
    """Its engine stands still: what is sent meanwhile meets in the queue."""
    engine = server.pids()["engine"]
    os.kill(engine, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine, signal.SIGCONT)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Poll, for what no event tells of: the state of other processes."""
    end = time.monotonic() + seconds
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        tick.wait(0.02)

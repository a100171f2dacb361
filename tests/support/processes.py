"""A real server for tests: the whole process tree, on free ports, with a directory of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from khot_proto.v1.job_service_pb2_grpc import JobServiceStub
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub

START_S = 60.0


class Server:
    """`khot-server` as a process, and stubs to call it."""

    def __init__(self, state_dir: Path, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "khot_server", "--state-dir", str(state_dir)]
        free = ("--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
        self.process = subprocess.Popen(
            [*command, *free, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
        )
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        found = self.wait_for_line(r"listening on (\S+), metrics on (\S+)")
        self.metrics_url = found[2]
        self.connect(found[1])

    def connect(self, address: str) -> None:
        """Call it at this address from now on."""
        self.address = address
        self.channel = grpc.insecure_channel(address)
        self.khot = KHotServiceStub(self.channel)
        self.jobs = JobServiceStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def _read(self) -> None:
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line.rstrip())
                self._said.notify_all()
        with self._said:
            self.lines.append("<end>")
            self._said.notify_all()

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """The first line of its output that fits."""

        def found() -> re.Match[str] | bool:
            matches = (re.search(pattern, line) for line in self.lines)
            return next((m for m in matches if m), None) or "<end>" in self.lines

        with self._said:
            match = self._said.wait_for(found, START_S)
        assert isinstance(match, re.Match), "\n".join(self.lines)
        return match

    def wait_until_serving(self) -> "Server":
        for answer in self.health.Watch(health_pb2.HealthCheckRequest(), timeout=START_S):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return self
        raise AssertionError("health ended")

    def pids(self) -> dict[str, int]:
        """The live processes of the service, by what they run."""
        return {name: pid for pid, name in descendants(self.process.pid)}

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; return its exit status."""
        self.channel.close()
        self.process.send_signal(number)
        return self.process.wait(60)

    def end(self) -> None:
        """However the test left it, nothing stays."""
        left = [pid for pid, _ in descendants(self.process.pid)]
        self.channel.close()
        self.process.kill()
        self.process.wait()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reader.join()
        self.process.stdout.close()


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
        found += [(pid, _module(commands[pid])) for pid in children]
    return found


def _module(command: str) -> str:
    known = {"api.app": "api", "worker.process": "engine", "jobs.runner": "runner"}
    for part, name in known.items():
        if f"khot_server.{part}" in command:
            return name
    return "tracker" if "resource_tracker" in command else "attempt"


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Poll, for what no event tells of: the state of other processes."""
    end = time.monotonic() + seconds
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        tick.wait(0.02)

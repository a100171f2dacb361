"""What is put under load: our server and the echo, each a process tree of its own, and a slow
trickle of real calls that checks what the quick generator cannot see.
"""

import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import grpc
import load_echo
import numpy as np
from load_runs import REFUSED, counted, requests_by_code, rows_served, stages

from khot_proto import to_tensor
from khot_proto.v1 import khot_service_pb2 as pb

HERE = Path(__file__).parent
CALL_S = 30.0
LINES = 20
SETTLE_S = 5.0  # an answer may be counted just after it was sent
LARGEST = [
    ("grpc.max_receive_message_length", load_echo.LARGEST),
    ("grpc.max_send_message_length", load_echo.LARGEST),
]


def scores(rows: int, n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal((rows, n), dtype=np.float32)


def relax_request(rows: int, n: int, k: int) -> bytes:
    item = pb.RelaxItem(operator="sigmoid_topk", scores=to_tensor(scores(rows, n)), k=[k])
    return bytes(pb.RelaxRequest(items=[item]).SerializeToString())


def sample_request(operator: str, rows: int, n: int, k: int) -> bytes:
    item = pb.SampleItem(operator=operator, scores=to_tensor(scores(rows, n)), k=[k], seed=1)
    return bytes(pb.SampleRequest(items=[item]).SerializeToString())


class Target(Protocol):
    """A server under load."""

    name: str
    address: str

    def path(self, method: str, reply_bytes: int) -> str:
        """What to call for a method of ours whose reply has this many bytes."""

    def pids(self) -> Mapping[str, Sequence[int]]:
        """Its processes by what they are."""

    def check(self, method: str, reply: bytes) -> dict[str, float]:
        """The stages of a reply. Raises ValueError if it is no good one."""

    def counted(self, method: str) -> dict[str, int]:
        """The calls it says it has answered, by code; none if it does not count."""


class Ours:
    """`khot-server` with these flags."""

    name = "ours"

    def __init__(self, *flags: str, **environment: str) -> None:
        sys.path.insert(0, str(HERE.parent / "support"))
        try:
            from processes import Server, descendants
        finally:
            sys.path.remove(str(HERE.parent / "support"))
        with ExitStack() as stack:
            state = stack.enter_context(tempfile.TemporaryDirectory())
            self._server = Server(Path(state), *flags, **environment)
            stack.callback(self._server.end)
            self._server.wait_until_serving()
            self._held = stack.pop_all()
        self._descendants = descendants
        self.address: str = self._server.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            print("\n".join(["load_grpc: the server's last lines:", *self._server.lines[-LINES:]]))
        self._held.close()

    def path(self, method: str, reply_bytes: int) -> str:
        del reply_bytes
        return f"/khot.v1.KHotService/{method}"

    def pids(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {"api": [], "engine": []}
        for pid, module in self._descendants(self._server.process.pid):
            for name, pids in found.items():
                if module.startswith(name):
                    pids.append(pid)
        return found

    def check(self, method: str, reply: bytes) -> dict[str, float]:
        answer = getattr(pb, f"{method}Response").FromString(reply)
        bad = [result.status for result in answer.results if result.status.code]
        if bad or not answer.results:
            raise ValueError(f"{method}: results must be good; got {bad or 'none'}")
        return stages(answer.results[0].timing)

    def counted(self, method: str) -> dict[str, int]:
        return requests_by_code(self._metrics(), method)

    def rows(self) -> int:
        """The rows it has served."""
        return rows_served(self._metrics())

    def _metrics(self) -> str:
        with urllib.request.urlopen(f"{self._server.metrics_url}/metrics", timeout=CALL_S) as page:
            text: str = page.read().decode()
        return text


class Echo:
    """`load_echo.py` as a process."""

    name = "echo"

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "load_echo.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.address = f"127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.communicate()  # ends with its standard input

    def path(self, method: str, reply_bytes: int) -> str:
        del method
        return f"{load_echo.SERVICE}{reply_bytes}"

    def pids(self) -> dict[str, list[int]]:
        return {"echo": [self._process.pid]}

    def check(self, method: str, reply: bytes) -> dict[str, float]:
        del method
        if reply.strip(b"\0"):
            raise ValueError("echo: reply must be zeros; got others")
        return {}

    def counted(self, method: str) -> dict[str, int]:
        del method
        return {}


@dataclass
class Trickle:
    """A real client in a thread: one call now and then, each checked, from enter to exit.

    Raises on exit what its calls raised: a refused or failed call under a load that must be
    served makes the whole measurement worthless.

    Attributes:
        every_s: the pause between calls; the first comes after half of it. There is one more
            before them all and one after.
        calls: how many there were.
        stages: what the replies under load say of their time.
    """

    target: Target
    method: str
    request: bytes
    reply_bytes: int
    every_s: float
    calls: int = 0
    stages: list[dict[str, float]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._channel = grpc.insecure_channel(self.target.address, LARGEST)
        path = self.target.path(self.method, self.reply_bytes)
        self._call: Callable[..., bytes] = self._channel.unary_unary(path)
        self._done = threading.Event()
        self._failure: Exception | None = None
        self.once()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        if error is None and self._failure is None:
            self.once()
        self._channel.close()
        if error is None and self._failure is not None:
            raise self._failure

    def once(self) -> dict[str, float]:
        """One call now; the stages of its reply."""
        found = self.target.check(self.method, self._call(self.request, timeout=CALL_S))
        self.calls += 1
        return found

    def _run(self) -> None:
        pause = self.every_s / 2
        while not self._done.wait(pause):
            pause = self.every_s
            try:
                self.stages.append(self.once())
            except Exception as error:  # told on exit
                self._failure = error
                return


def reply_size(target: Target, method: str, request: bytes) -> int:
    """How many bytes the target answers with; raises if it does not answer well."""
    with grpc.insecure_channel(target.address, LARGEST) as channel:
        call: Callable[..., bytes] = channel.unary_unary(target.path(method, 0))
        reply = call(request, timeout=CALL_S)
    target.check(method, reply)
    return len(reply)


class Counted:
    """From enter to exit the target must count as many calls of each code as were seen, but for
    those that failed on the way and never reached it.

    Raises:
        ValueError: on exit, if it does not, also after a while.

    Attributes:
        seen: the calls by code, to be set before the exit.
    """

    def __init__(self, target: Target, method: str) -> None:
        self._target, self._method = target, method
        self.seen: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._before = self._target.counted(self._method)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None or not self._before:
            return
        end = time.monotonic() + SETTLE_S
        while not self._agrees(found := counted(self._before, self._target.counted(self._method))):
            if time.monotonic() > end:
                raise ValueError(f"{self._method}: the server must count {self.seen}; got {found}")
            time.sleep(0.01)

    def _agrees(self, found: dict[str, int]) -> bool:
        codes = {*found, "OK", REFUSED}
        return all(found.get(code, 0) == self.seen.get(code, 0) for code in codes)

"""What metrics cost: at every call, at every scrape, and in series.

`ratio` is the processor time of the API process for a call of one row, beside that of a call that
is not counted (`load_toggled_api.py`). A round has counted, uncounted and counted calls, so that
what drifts on the machine cancels out, and the median of the rounds' ratios counts; `same` is that
of the first counted calls over the last, which only noise makes other than 1. `scrape` is the time,
the processor time and the size of a page with 200 jobs that ended and 20 that run. `series` are
those of a page before and after 1,000 more jobs have come and gone.
"""

import contextlib
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import harness

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from calls import quick
from processes import cpu_s, wait_until
from stored import told

from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub
from khot_server.config import Settings
from khot_server.control import ENGINE, READY
from khot_server.jobs.results import VaeResult
from khot_server.jobs.spec import VaeSpec
from khot_server.jobs.states import ENDED
from khot_server.jobs.store import DATABASE_NAME, JobStore
from khot_server.supervisor import with_ports

CALLERS = 4
SIZES = (75, 300, 200, 20, 1000)
API = Path(__file__).with_name("load_toggled_api.py")
RESULT = VaeResult(test={}, validation={}, usage=(0.5,), usage_shape=(1, 1), epochs_run=1)
DAY_S = 86_400.0


class Api:
    """An API process with an engine, and this process in the place of their supervisor."""

    def __init__(self, state_dir: Path) -> None:
        local = {"address": "127.0.0.1:0", "metrics_address": "127.0.0.1:0"}
        settings, self._held = with_ports(Settings(state_dir=state_dir, **local))
        self._control, control = socket.socketpair()
        self._line, line = socket.socketpair()
        link, theirs = socket.socketpair()
        flags = {"--control-fd": control.fileno(), "--settings": settings.model_dump_json()}
        self._api = _start([str(API)], flags, control)
        assert self._control.recv(1) == READY
        flags = {"--link-fd": theirs.fileno(), "--lifeline-fd": line.fileno()}
        self._engine = _start(["-m", "khot_server.worker.process"], flags, theirs, line)
        with link:
            socket.send_fds(self._control, [ENGINE], [link.fileno()])
        self._line.send(b"cpu")
        self._page = f"http://{settings.metrics_address}/metrics"
        self._channel = grpc.insecure_channel(settings.address, [("grpc.enable_http_proxy", 0)])
        self._relax = KHotServiceStub(self._channel).Relax
        wait_until(lambda: "khot_engine_up 1.0" in self.scrape()[1], "the engine")

    def close(self) -> None:
        self._channel.close()
        for end in (self._control, self._line, *self._held):
            end.close()
        for process in (self._api, self._engine):
            process.kill()
            process.wait()

    def scrape(self) -> tuple[float, str]:
        """How long it took, and the page."""
        start = time.perf_counter()
        with urllib.request.urlopen(self._page, timeout=30) as page:
            text = page.read().decode()
        return time.perf_counter() - start, text

    @property
    def pid(self) -> int:
        return self._api.pid

    def toggle(self) -> None:
        """Count nothing from now on, or again."""
        self._api.send_signal(signal.SIGUSR1)

    def counted(self) -> int:
        """The calls that it has counted."""
        (count,) = re.findall(
            r'khot_requests_total{code="OK",method="Relax"} (\S+)', self.scrape()[1]
        )
        return int(float(count))

    def call_us(self, calls: int) -> float:
        """The processor time of the API process for a call of one row."""
        request, before = quick(n=784), self._cpu_ns()
        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(lambda _: self._relax(request, timeout=60), range(calls)))
        return (self._cpu_ns() - before) / 1e3 / calls

    def _cpu_ns(self) -> int:
        """Of all its threads, which live as long as it does."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _start(
    program: Sequence[str], flags: Mapping[str, object], *ends: socket.socket
) -> subprocess.Popen[bytes]:
    """A process that has these ends, which are its own from then on."""
    command = [sys.executable, *program, *(str(part) for pair in flags.items() for part in pair)]
    with contextlib.ExitStack() as closing:
        for end in ends:
            closing.enter_context(end)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[end.fileno() for end in ends],
            env={**os.environ, "KHOT_LOG_LEVEL": "warning"},
        )


@contextlib.contextmanager
def running() -> Iterator[tuple[Api, JobStore]]:
    """An API process, and its store."""
    with tempfile.TemporaryDirectory(prefix="khot-") as directory:
        api = Api(Path(directory))
        store = JobStore(Path(directory) / DATABASE_NAME, max_tenant_jobs=10_000)
        with contextlib.closing(api), contextlib.closing(store):
            yield api, store


def timed_calls(api: Api, rounds: int, calls: int) -> list[tuple[float, float, float]]:
    """The microseconds of a call that is counted, of one that is not, and counted again."""
    api.call_us(calls)
    timed, before = [], api.counted()
    for _ in range(rounds):
        first_us = api.call_us(calls)
        api.toggle()
        uncounted_us = api.call_us(calls)
        api.toggle()
        timed.append((first_us, uncounted_us, api.call_us(calls)))
    assert api.counted() - before == 2 * rounds * calls
    return timed


def begin(store: JobStore) -> str:
    """A job that runs and has told of its progress; return the token of its lease."""
    store.submit("local", uuid.uuid4().hex, VaeSpec(dataset="digits"))
    claim = store.leases.claim("bench", DAY_S)
    assert claim is not None
    store.leases.progress(claim.token, *told(1, 2, {"loss": 0.5}, {3: 1}))
    return claim.token


def run_jobs(store: JobStore, api: Api, count: int) -> None:
    """Let so many jobs come and go, and the API process know of it."""
    for _ in range(count):
        store.leases.succeed(begin(store), RESULT)
    ended = sum(number for (state, _), number in store.census().jobs.items() if state in ENDED)
    line = f'khot_jobs{{kind="vae",state="SUCCEEDED"}} {float(ended)}'
    wait_until(lambda: line in api.scrape()[1], "the jobs to be counted")


def series(page: str) -> int:
    return sum(not line.startswith("#") for line in page.splitlines())


def main() -> None:
    """Measure, and report."""
    given = harness.arguments(__doc__.splitlines()[0])
    rounds, calls, ended, under_way, more = (2, 40, 5, 2, 10) if given.smoke else SIZES
    with running() as (api, store):
        timed = timed_calls(api, rounds, calls)
        run_jobs(store, api, ended)
        tokens = [begin(store) for _ in range(under_way)]
        wait_until(lambda: api.scrape()[1].count("khot_job_loss{") == len(tokens), "those that run")
        used_s = cpu_s(api.pid)
        scrapes = [api.scrape() for _ in range(rounds)]
        used_s = cpu_s(api.pid) - used_s
        _, before = scrapes[-1]
        run_jobs(store, api, more)
        _, after = api.scrape()
    row = {
        "call_us": statistics.median((first + last) / 2 for first, _, last in timed),
        "uncounted_us": statistics.median(between for _, between, _ in timed),
        "ratio": statistics.median((first + last) / 2 / between for first, between, last in timed),
        "same": statistics.median(first / last for first, _, last in timed),
        "scrape_ms": 1e3 * statistics.median(seconds for seconds, _ in scrapes),
        "scrape_cpu_ms": 1e3 * used_s / rounds,
        "scrape_kb": len(before) / 1e3,
        "series": series(before),
        f"series_{more}_jobs_later": series(after),
    }
    harness.report("metrics", [row], given.out)


if __name__ == "__main__":
    main()

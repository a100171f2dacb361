"""What the client costs: its import, a small call, and many calls of asyncio.

    import        `from khot_client import Client` over `import numpy, grpc`, in fresh interpreters;
                  a name, because the package alone loads nothing
    help          `khot --help` over `python -c 'import numpy, grpc'`, from start to end
    unary CPU     processor time of a 1x784 `Client.relax` over that of a bare stub with the same
                  request, built before and not looked into after; and over bytes as they are
    async rate    calls/s of AsyncClient.sample over the load generator's, which sends ready
                  bytes and reads nothing: a call for each row, on a stream, and coalesced;
                  and the client's example, which keeps the masks

The candidates take turns, round by round; what counts is the median of the ratios.
"""

import asyncio
import json
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import harness
from load_targets import Ours, scores

from khot_client import AsyncClient, Client
from khot_client.operations import RELAX, SAMPLE
from khot_client.values import RelaxItem, SampleItem
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub

HERE = Path(__file__).parent
N, K, CALLERS = 784, 50, 64
RELAX_PATH, SAMPLE_PATH = "/khot.v1.KHotService/Relax", "/khot.v1.KHotService/Sample"
BARE = "import numpy, grpc"
OURS = "from khot_client import Client"
HELP = [str(Path(sys.executable).with_name("khot")), "--help"]
EXAMPLE = HERE.parents[1] / "client/examples/sample_in_batches.py"
MUST = {
    "import": 2.0,
    "help": 3.0,
    "unary CPU, stub": 1.3,
    "unary CPU, bytes": 1.3,
    "async, calls": 0.8,
    "async, example": 0.8,
}


def import_s(statement: str) -> float:
    """Seconds that a fresh interpreter needs for it."""
    code = (
        f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter()-start)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def process_s(command: list[str]) -> float:
    """Seconds from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def median_ratio(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Any:
    """The median of ours over theirs, in turn, and the medians of both."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            pairs.append((ours(), theirs()))
        else:
            their = theirs()
            pairs.append((ours(), their))
    ratio = statistics.median(a / b for a, b in pairs)
    return ratio, *(statistics.median(column) for column in zip(*pairs, strict=True))


def cpu_of(call: Callable[[], object], count: int) -> float:
    """Microseconds of this process's processor time for one call."""
    start = time.process_time()
    for _ in range(count):
        call()
    return 1e6 * (time.process_time() - start) / count


def unary(address: str, base: str, count: int, rounds: int) -> tuple[float, float, float]:
    x = scores(1, N)
    request = RELAX.one(RelaxItem(x, K), None).request
    with Client(address) as client, grpc.insecure_channel(address) as channel:
        stub: Any = KHotServiceStub(channel).Relax
        if base == "bytes":
            stub, request = channel.unary_unary(RELAX_PATH), request.SerializeToString()
        found: tuple[float, float, float] = median_ratio(
            lambda: cpu_of(lambda: client.relax(x, K), count),
            lambda: cpu_of(lambda: stub(request, timeout=30.0), count),
            rounds,
        )
        return found


async def all_of(call: Callable[[Any], Awaitable[object]], rows: Any) -> float:
    """Calls/s of CALLERS tasks that share the rows."""
    left: Iterator[Any] = iter(rows)

    async def caller() -> None:
        for row in left:
            await call(row)

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return len(rows) / (time.perf_counter() - start)


def awaited(address: str, way: str, rows: Any) -> float:
    if way == "example":
        sample_all = runpy.run_path(str(EXAMPLE))["sample_all"]
        _, rate = asyncio.run(sample_all(address, rows, CALLERS))
        return float(rate)

    async def run() -> float:
        async with AsyncClient(address, coalesce=way == "coalesced") as client:
            await client.sample(rows[0], K)
            if way != "stream":
                return await all_of(lambda row: client.sample(row, K, seed=1), rows)
            async with client.stream(CALLERS) as stream:
                return await all_of(lambda row: stream.sample(row, K, seed=1), rows)

    return asyncio.run(run())


def generated(address: str, body: Path, count: int) -> float:
    """Calls/s of the load generator, over one connection."""
    spec = {
        "loop": "closed",
        "callers": CALLERS,
        "channels": 1,
        "requests": count,
        "address": address,
        "path": SAMPLE_PATH,
        "body": str(body),
        "reply": None,
    }
    command = [sys.executable, str(HERE / "load_client.py"), json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return count / json.loads(done.stdout)["seconds"]


def main() -> None:
    given = harness.arguments(__doc__ or "")
    rounds, calls, count = (2, 20, 64) if given.smoke else (9, 500, 10_000)
    rows: list[dict[str, object]] = []

    def add(case: str, found: tuple[float, float, float], unit: str) -> None:
        ratio, ours, theirs = found
        row = {"case": case, "ratio": ratio, "must": MUST.get(case, ""), "ours": ours}
        rows.append({**row, "base": theirs, "unit": unit})

    imports = median_ratio(lambda: import_s(OURS), lambda: import_s(BARE), rounds)
    add("import", imports, "s")
    bare = [sys.executable, "-c", BARE]
    add("help", median_ratio(lambda: process_s(HELP), lambda: process_s(bare), rounds), "s")
    samples = scores(count, N)
    with Ours() as server, tempfile.TemporaryDirectory() as folder:
        body = Path(folder, "body")
        item = SampleItem(samples[0], K, seed=1)
        body.write_bytes(SAMPLE.one(item, None).request.SerializeToString())
        unary(server.address, "stub", calls // 10 + 1, 2)
        for base in ("stub", "bytes"):
            found = unary(server.address, base, calls, rounds)
            add(f"unary CPU, {base}", found, "us")
        for way in ("calls", "stream", "coalesced", "example"):
            found = median_ratio(
                lambda way=way: awaited(server.address, way, samples),  # type: ignore[misc]
                lambda: generated(server.address, body, count),
                max(2, rounds // 3),
            )
            add(f"async, {way}", found, "calls/s")
    harness.report("client", rows, given.out)


if __name__ == "__main__":
    main()

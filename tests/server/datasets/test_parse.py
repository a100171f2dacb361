"""The reader's process: within its limits, and gone when nobody waits for it."""

import asyncio
import functools
import io
import json
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import alive, wait_until

from khot_server.datasets import child
from khot_server.datasets.child import ParseLimits, Parser
from khot_server.datasets.records import BadTable, Format
from khot_server.datasets.stored import read_summary

CSV = b"a,b,label\n" + b"".join(b"%d,%d,%d\n" % (i, i * i, i % 2) for i in range(20))
QUICK = ParseLimits(time_s=60)


def run(test):
    """An async test as a test."""

    @functools.wraps(test)
    def wrapper(**parameters) -> None:
        asyncio.run(asyncio.wait_for(test(**parameters), 60))

    return wrapper


@pytest.fixture
def parse(tmp_path, header):
    """Parse these bytes in another process."""

    async def run(data: bytes, kind: Format = Format.CSV, limits: ParseLimits = QUICK):
        path = tmp_path / "file"
        path.write_bytes(data)
        return await Parser(limits).parse(header(data, kind=kind), path, tmp_path / "out")

    return run


def parquet(table: dict) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(table), file)
    return file.getvalue()


@run
async def test_every_format_is_read(parse, npz, tmp_path):
    numbers = {"a": np.arange(20.0), "label": np.arange(20) % 2}
    files = {
        Format.CSV: CSV,
        Format.NPZ: npz(x=np.arange(40).reshape(20, 2), y=numbers["label"]),
        Format.PARQUET: parquet(numbers),
    }
    for kind, data in files.items():
        summary = await parse(data, kind)
        whole = read_summary(tmp_path / "out")
        assert summary == whole.without_columns() and summary.rows == 20
        assert whole.target in ("label", "y") and whole.columns
        (tmp_path / "out").rename(tmp_path / kind)


@run
async def test_a_fault_is_told_in_its_words(parse):
    with pytest.raises(BadTable, match=r"^line 2: must have 2 cells, as the header; got 1$"):
        await parse(b"a,b\n1\n")
    with pytest.raises(BadTable, match=r"^arrays: must have at most 1000 bytes uncompressed; got"):
        await parse(bomb(10_000), Format.NPZ, ParseLimits(max_bytes=1000))


def bomb(cells: int) -> bytes:
    """An npz file of zeros, a thousandth of what it holds."""
    array, file = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros((cells // 10, 10)))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", array.getvalue())
    return file.getvalue()


@pytest.mark.parametrize("kind", [Format.NPZ, Format.PARQUET])
@run
async def test_a_table_that_needs_more_memory_is_refused(parse, kind, tmp_path):
    """64 MB, in 32 MB."""
    cells = 8_000_000
    data = bomb(cells) if kind is Format.NPZ else parquet({"a": np.zeros(cells)})
    limits = ParseLimits(memory_bytes=32 << 20)
    with pytest.raises(
        BadTable, match="must be read within 33554432 bytes of memory; got one that"
    ):
        await parse(data, kind, limits)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert (await parse(data, kind, ParseLimits(memory_bytes=2 << 30))).rows * 10 >= cells


LONG = b"a,b\n" + b"0.123456789,1\n" * 1_000_000


@run
async def test_a_table_that_takes_too_long_is_refused_and_its_process_ends(parse, pids):
    with pytest.raises(BadTable, match="must be read within 0.3 s; got one that takes longer"):
        await parse(LONG, limits=ParseLimits(time_s=0.3))
    assert len(pids) == 1 and not alive(pids[0])


@pytest.fixture
def pids(monkeypatch):
    """Of all readers that are started."""
    found, start = [], child.Parser._start

    async def started(self, *args):
        process = await start(self, *args)
        found.append(process.pid)
        return process

    monkeypatch.setattr(child.Parser, "_start", started)
    return found


def test_the_time_on_a_core_is_limited_too(tmp_path):
    with reader(tmp_path, LONG * 6, cpu_s=1) as process:
        assert process.wait(30) == -signal.SIGXCPU
    with pytest.raises(BadTable, match="must be read within 60 s; got one that takes longer"):
        Parser(QUICK)._answer(-signal.SIGXCPU, b"")


def reader(tmp_path: Path, data: bytes, cpu_s: int) -> subprocess.Popen[bytes]:
    """A reader of these bytes."""
    path = tmp_path / "file"
    path.write_bytes(data)
    command = [sys.executable, "-m", "khot_server.datasets.parse", str(path), str(tmp_path / "out")]
    command += ["--format=CSV", "--sha256=0", "--max-bytes=1000000000"]
    command += ["--memory-bytes=1000000000", f"--cpu-s={cpu_s}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@run
async def test_a_cancelled_reader_leaves_no_process(parse, pids):
    task = asyncio.create_task(parse(LONG))
    while not pids:
        await asyncio.sleep(0.01)
    assert alive(pids[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pids[0])


@run
async def test_so_many_are_read_side_by_side_and_others_wait(tmp_path, header, pids):
    path = tmp_path / "file"
    path.write_bytes(LONG)
    parser = Parser(ParseLimits(at_once=2))
    tasks = [
        asyncio.create_task(parser.parse(header(LONG), path, tmp_path / f"out{i}"))
        for i in range(3)
    ]
    while len(pids) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert len(pids) == 2
    tasks[0].cancel()
    while len(pids) < 3:
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@run
async def test_a_reader_that_dies_is_a_fault_of_the_file(parse, monkeypatch):
    monkeypatch.setattr(child.sys, "executable", "/bin/false")
    with pytest.raises(BadTable, match=r"got one that ended its reader \(1\)"):
        await parse(CSV)


@run
async def test_a_disk_that_does_not_work_is_no_fault_of_the_file(parse, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(OSError, match="File exists"):
        await parse(CSV)


def test_a_reader_ends_with_the_one_who_waits(tmp_path):
    """Its input is a pipe of the one who started it, who may be killed."""
    with reader(tmp_path, LONG, cpu_s=60) as process:
        wait_until(lambda: reads(process.pid, tmp_path / "file"), "it to begin")
        process.stdin.close()
        assert process.wait(30) == 1
        assert process.stdout.read() == b""


def reads(pid: int, path: Path) -> bool:
    try:
        return any(one.resolve() == path for one in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_it_loads_neither_torch_nor_the_database():
    code = "import sys, json, khot_server.datasets.parse; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"torch", "khot", "grpc", "sqlalchemy", "sklearn", "pyarrow", "pooch"}

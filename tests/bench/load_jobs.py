"""How quickly jobs are stored, listed and begun, on a real server.

`submits` are durable ones from 32 connections at once, each on disk before it is answered;
beside them `fsyncs` of a file of one page, one after the other, as the disk's own measure.
`list` is the time of one page of 500 queued jobs. `first step` is from SubmitJob to the first
progress of a job on digits, with a nursery that has loaded.
"""

import os
import statistics
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import harness

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from jobs import selection, submit
from processes import Server, wait_until

from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1.job_service_pb2_grpc import JobServiceStub

CALLERS = 32


def submits_per_s(server: Server, count: int) -> float:
    """Durable submits of `count` jobs that stay queued, by CALLERS at once."""

    def some(number: int) -> None:
        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(server.address, options) as channel:
            stub = JobServiceStub(channel)
            for _ in range(number):
                request = pb.SubmitJobRequest(
                    request_id=uuid.uuid4().hex, spec=selection(epochs=10_000)
                )
                stub.SubmitJob(request, timeout=60)

    start = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(some, [count // CALLERS] * CALLERS))
    return count // CALLERS * CALLERS / (time.perf_counter() - start)


def fsyncs_per_s(directory: Path, count: int) -> float:
    """How often the disk takes a page for good."""
    with (directory / "page").open("wb") as file:
        start = time.perf_counter()
        for _ in range(count):
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        return count / (time.perf_counter() - start)


def list_s(server: Server) -> float:
    """The time of one page of 500 jobs."""
    start = time.perf_counter()
    page = server.jobs.ListJobs(pb.ListJobsRequest(page_size=500), timeout=60)
    taken = time.perf_counter() - start
    assert len(page.jobs) == 500 or len(page.jobs) < CALLERS * 2
    return taken


def first_step_s(server: Server) -> float:
    """From SubmitJob to the first progress."""
    start = time.perf_counter()
    job = submit(server, selection(epochs=2, patience=0))
    request = pb.WatchJobRequest(job_id=job.id)
    taken = None
    for answer in server.jobs.WatchJob(request, timeout=60):
        if taken is None and answer.event.HasField("progress"):
            taken = time.perf_counter() - start
    assert taken is not None
    return taken


def main() -> None:
    """Measure on a server of our own, and report."""
    given = harness.arguments(__doc__.splitlines()[0])
    jobs, rounds = (CALLERS, 2) if given.smoke else (1600, 7)
    with tempfile.TemporaryDirectory(prefix="khot-") as directory:
        flags = ("--warm-attempts", "true", "--max-tenant-jobs", "10000")
        server = Server(Path(directory) / "state", *flags, TMPDIR=directory)
        try:
            server.wait_until_serving()
            wait_until(lambda: "nursery" in server.pids(), "the nursery")
            first_step_s(server)  # the nursery may be loading still
            first = [first_step_s(server) for _ in range(rounds)]
            syncs = fsyncs_per_s(Path(directory), 200)
            stored = submits_per_s(server, jobs // 2)
            stored = statistics.fmean([stored, submits_per_s(server, jobs // 2)])
            listed = [list_s(server) for _ in range(rounds)]
        finally:
            server.end()
    row = {
        "submits_per_s": stored,
        "fsyncs_per_s": syncs,
        "list_500_ms": 1000 * statistics.median(listed),
        "first_step_s": statistics.median(first),
    }
    harness.report("jobs", [row], given.out)


if __name__ == "__main__":
    main()

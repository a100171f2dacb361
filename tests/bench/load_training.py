"""What the service adds to the cost of a training: processor time a step, beside a plain script.

Feature selection on digits by `plain_selection.py` (which draws the masks of a batch as samples of
one row, or with `--expand`, as most would write it, a row for each example), and as a job of a real
server with its usual settings: the processor time of runner, nursery and attempt together, of a
long job less that of a short one, so that loading and pictures cancel out. They take turns.
`checkpoints` is the share of a job's time that its checkpoints took, as its log tells; of a larger
model, too.
"""

import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from jobs import ended, selection, submit
from processes import Server, cpu_s, wait_until

from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1 import job_spec_pb2 as spec_pb

SHORT, LONG = 60, 200  # epochs
WIDE = (1024, 1024)  # hidden layers: a checkpoint of 30 MB


def plain_s(epochs: int, *flags: str) -> float:
    """The script's processor time for a step."""
    script = Path(__file__).with_name("plain_selection.py")
    command = [sys.executable, str(script), "--epochs", str(epochs), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def used_s(server: Server) -> float:
    """The processor time that jobs had so far."""
    pids = server.pids()
    return cpu_s(pids["runner"]) + cpu_s(pids["nursery"], children=True)


def job_s(server: Server, epochs: int) -> tuple[float, int]:
    """The processor time of a job, and its steps."""
    before = used_s(server)
    job = ended(server, submit(server, selection(epochs=epochs)).id)
    assert job.state == pb.JOB_STATE_SUCCEEDED, job
    server.wait_for_line(rf"attempt_ended .*job={job.id}")  # its parent knows its time then
    return used_s(server) - before, job.progress.step


def served_s(server: Server, epochs: int, fewer: int) -> float:
    """The service's processor time for a step."""
    (long_s, long_steps), (short_s, short_steps) = job_s(server, epochs), job_s(server, fewer)
    return (long_s - short_s) / (long_steps - short_steps)


def checkpoint_share(server: Server, spec: spec_pb.JobSpec) -> float:
    """The share of a job's time that went into checkpoints."""
    job = ended(server, submit(server, spec).id)
    log = server.jobs.GetLogs(pb.GetLogsRequest(job_id=job.id), timeout=60).text
    took = [float(ms) / 1e3 for ms in re.findall(r"checkpoint at step \d+, ([\d.]+) ms", log)]
    request = pb.ListAttemptsRequest(job_id=job.id)
    (attempt,) = server.jobs.ListAttempts(request, timeout=60).attempts
    span = attempt.end_time.ToDatetime() - attempt.start_time.ToDatetime()
    return sum(took) / span.total_seconds()


def main() -> None:
    """Measure on a server of our own, and report."""
    given = harness.arguments(__doc__.splitlines()[0])
    rounds, short, long = (1, 4, 8) if given.smoke else (7, SHORT, LONG)
    wide = selection(epochs=4 if given.smoke else 40)
    wide.feature_selection.hidden.widths.extend(WIDE)
    with tempfile.TemporaryDirectory(prefix="khot-") as directory:
        server = Server(Path(directory) / "state", "--warm-attempts", "true", TMPDIR=directory)
        try:
            server.wait_until_serving()
            wait_until(lambda: "nursery" in server.pids(), "the nursery")
            job_s(server, 2)  # it may be loading still, and the next one is its own
            job_s(server, 2)
            timed = [
                (served_s(server, long, short), plain_s(long), plain_s(long, "--expand"))
                for _ in range(rounds)
            ]
            share = checkpoint_share(server, selection(epochs=long))
            wide_share = checkpoint_share(server, wide)
        finally:
            server.end()
    served, plain, expanded = zip(*timed, strict=True)
    ratios = [ours / theirs for ours, theirs in zip(served, plain, strict=True)]
    others = [ours / theirs for ours, theirs in zip(served, expanded, strict=True)]
    row = {
        "served_us": 1e6 * statistics.median(served),
        "plain_us": 1e6 * statistics.median(plain),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "expand_us": 1e6 * statistics.median(expanded),
        "of_expand": statistics.median(others),
        "checkpoints_percent": 100 * share,
        "checkpoints_wide_percent": 100 * wide_share,
    }
    harness.report("training", [row], given.out)


if __name__ == "__main__":
    main()

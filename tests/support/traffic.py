"""A small load of every kind, which keeps count of what it did."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from processes import Server, stopped_engine, wait_until

import khot
from khot_client import Client, FeatureSelection, KhotError, Vae
from khot_client.job_values import Event, Progress
from khot_client.jobs import Job

N, K = 64, 8
# What a server under this load is started with: its queue can be filled, its engine be stopped.
MOST_SCORES = 1 << 16
FLAGS = ("--max-queue-elements", str(MOST_SCORES), "--engine-silence-s", "60")
FLAGS += ("--job-slots", "2", "--warm-attempts", "true", "--checkpoint-s", "0.2")
# operator -> (calls, rows of each, samples of each row)
RELAXED = {"sigmoid_topk": (5, 40, 1), "sparse_topk": (3, 7, 1), "softmax_topk": (2, 3, 1)}
DRAWN = {
    "pivotal": (4, 16, 3),
    "systematic": (3, 5, 1),
    "conditional_poisson": (2, 4, 2),
    "pi_st": (2, 6, 1),
}
DESIGNS = {"pi_st": "pivotal"}  # of the estimators among them
LONG = {"epochs": 5000, "patience": 0, "references": False}  # longer than anybody waits
SMALL_VAE = {"latents": 2, "n": 6, "k": 2, "encoder": (16,), "decoder": (16,)}


@dataclass
class Done:
    """What the load did.

    Attributes:
        rows: served, by operator.
        draws: by design.
        calls: by method and code, of those that are counted here.
        submitted: jobs by kind.
        ended: jobs by kind and outcome.
        iterations, fallback: of the rows of sigmoid_topk, by the library's own account.
        uploaded, downloaded: bytes of files.
        running: the job that was left running.
    """

    rows: Counter[str] = field(default_factory=Counter)
    draws: Counter[str] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    submitted: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    iterations: int = 0
    fallback: int = 0
    uploaded: int = 0
    downloaded: int = 0
    running: Job | None = None


def scores(rows: int, generator: np.random.Generator) -> np.ndarray:
    """Scores of which some need bisection: a few far outliers in every tenth row."""
    x = generator.normal(size=(rows, N)).astype(np.float32)
    x[::10] = generator.standard_cauchy(size=x[::10].shape) * 1e4
    return x


def serve(client: Client, done: Done) -> None:
    """Calls of several operators."""
    generator = np.random.default_rng(0)
    for operator, (calls, rows, _) in RELAXED.items():
        for _ in range(calls):
            x = scores(rows, generator)
            client.relax(x, K, operator=operator)
            done.rows[operator] += rows
            done.calls["Relax", "OK"] += 1
            if operator == "sigmoid_topk":
                count_roots(x, done)
    for operator, (calls, rows, samples) in DRAWN.items():
        for _ in range(calls):
            x = generator.normal(size=(rows, N)).astype(np.float32)
            client.sample(x, K, operator=operator, num_samples=samples)
            done.rows[operator] += rows
            done.draws[DESIGNS.get(operator, operator)] += rows * samples
            done.calls["Sample", "OK"] += 1


def count_roots(x: np.ndarray, done: Done) -> None:
    """Solve rows here too, and count how."""
    _, told = khot.sigmoid_topk_with_diagnostics(torch.from_numpy(x), K)
    done.iterations += int(told.iterations.sum())
    done.fallback += int(told.fallback.sum())


def be_refused(server: Server, client: Client, done: Done) -> None:
    """Calls that are answered with a reason, each another number of times."""

    def call(method: str, wanted: str, ask: Callable[[], object]) -> None:
        code = code_of(ask)
        assert code == wanted, f"{method}: must be refused with {wanted}; got {code}"
        done.calls[method, code] += 1

    for _ in range(2):
        call("GetJob", "NOT_FOUND", lambda: client.job("none").status())
    for _ in range(3):
        call("SubmitJob", "INVALID_ARGUMENT", lambda: client.submit(FeatureSelection(k=-1)))
    full = np.zeros((MOST_SCORES // N, N), np.float32)
    with ThreadPoolExecutor() as pool:
        with stopped_engine(server):
            waiting = pool.submit(client.relax, full, K)
            wait_until(lambda: server.in_flight("Relax"), "a full queue")
            for _ in range(4):
                call("Relax", "RESOURCE_EXHAUSTED", lambda: client.relax(full, K))
        waiting.result()
    done.calls["Relax", "OK"] += 1
    done.rows["sigmoid_topk"] += len(full)
    count_roots(full, done)


def code_of(ask: Callable[[], object]) -> str:
    """How a call was answered."""
    try:
        ask()
    except KhotError as error:
        return error.code
    return "OK"


def train(client: Client, done: Done, files: Path) -> None:
    """Jobs of both kinds with every end that can be had quickly, files, and one that runs on."""
    specs = {
        "succeeded": FeatureSelection(k=10, epochs=2, references=False),
        "also succeeded": Vae(epochs=2, **SMALL_VAE),
        "diverged": FeatureSelection(k=10, learning_rate=1e6, hidden=(8,) * 8),
        "cancelled": FeatureSelection(k=10, **LONG),
        "running": FeatureSelection(k=10, seed=1, **LONG),
    }
    jobs = {}
    for name, spec in specs.items():
        jobs[name] = client.submit(spec)
        done.submitted[spec.kind] += 1
    jobs["cancelled"].cancel()
    done.running = jobs.pop("running")
    for name, job in jobs.items():
        with contextlib.suppress(KhotError):
            job.wait(100)
        status = job.status()
        outcome = (status.failure.kind if status.failure else status.state).lower()
        assert outcome == name.removeprefix("also "), status
        done.ended[specs[name].kind, outcome] += 1
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 20))
    table = files / "table.npz"
    np.savez(table, x=x, y=(x[:, 0] > 0).astype(int))
    client.upload(table, name="table")
    done.uploaded = table.stat().st_size
    done.downloaded = sum(path.stat().st_size for path in jobs["succeeded"].download(files / "out"))
    with watching(done.running) as events:
        next(event for event in events if isinstance(event, Progress))


@contextlib.contextmanager
def watching(job: Job) -> Iterator[Iterator[Event]]:
    """The events of a job, on a call that is under way meanwhile."""
    with contextlib.closing(job.watch()) as events:
        next(events)
        yield events

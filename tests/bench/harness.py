"""What the benchmarks share: interleaved rounds, a table, a CSV.

The machine may be shared and noisy, so times are compared within one run only:
the candidates take turns, round by round, and the ratio of each round counts.
"""

import argparse
import csv
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console
from rich.table import Table

import khot
from khot._native import library

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
WIDTH = 220


def arguments(description: str, **files: str) -> argparse.Namespace:
    """The options every benchmark has, --smoke and --out, and files it may write, by name."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--out", type=Path, help="folder for the CSV; none is written without it")
    for name, content in files.items():
        parser.add_argument(f"--{name}", type=Path, help=content)
    return parser.parse_args()


def ratios(
    candidates: Mapping[str, Callable[[], object]], baseline: str, rounds: int
) -> dict[str, float]:
    """The median over rounds of each candidate's time over the baseline's, same round."""
    for run in candidates.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {
        name: statistics.median(a / b for a, b in zip(taken, times[baseline], strict=True))
        for name, taken in times.items()
    }


def on_torch(function: Callable[..., T]) -> Callable[..., T]:
    """The same with the kernels turned off for the call."""

    def without_kernels(*given: object) -> T:
        loaded, library._library.object = library._library.object, None
        try:
            return function(*given)
        finally:
            library._library.object = loaded

    return without_kernels


def report(name: str, rows: Sequence[Mapping[str, object]], out: Path | None) -> None:
    """Print the rows as a table and, if asked, write them with where they were measured."""
    table = Table(*rows[0], title=name)
    for row in rows:
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row.values())
        table.add_row(*cells)
    # a wide table, folded to 80 columns, cannot be read from a file
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    where = {
        "commit": git.stdout.strip() or "unknown",
        "torch": torch.__version__,
        "device": "cpu",
        "machine": platform.machine(),
        "native": khot.native_info().variant or "none",
        "threads": torch.get_num_threads(),
    }
    path = out / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*where, *rows[0]])
        writer.writeheader()
        writer.writerows({**where, **row} for row in rows)
    Console().print(f"written: {path}")

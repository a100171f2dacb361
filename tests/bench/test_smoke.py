"""Every benchmark runs, at tiny sizes, and writes what it measured."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = sorted(Path(__file__).parent.glob("bench_*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmark_runs(path, tmp_path):
    command = [sys.executable, str(path), "--smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.iterdir()
    assert written.stem == path.stem.removeprefix("bench_")
    with written.open() as file:
        rows = list(csv.DictReader(file))
    assert rows and all(row["commit"] and row["torch"] and row["device"] for row in rows)

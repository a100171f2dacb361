"""Every benchmark runs, at tiny sizes, and writes what it measured."""

import csv
import runpy
import sys
from pathlib import Path

import pytest
import torch

PICTURES = b"<svg", b"\x89PNG"
BENCHMARKS = sorted(Path(__file__).parent.glob("bench_*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmark_runs(path, tmp_path, monkeypatch):
    threads = torch.get_num_threads()
    out, picture = tmp_path / "out", tmp_path / "picture"
    command = [str(path), "--smoke", "--out", str(out)]
    if "picture=" in path.read_text():
        command += ["--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.syspath_prepend(str(path.parent))  # as for a script
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    (written,) = out.iterdir()
    assert written.stem == path.stem.removeprefix("bench_")
    with written.open() as file:
        rows = list(csv.DictReader(file))
    assert "--picture" not in command or picture.read_bytes().startswith(PICTURES)
    assert rows and all(row["commit"] and row["torch"] and row["device"] for row in rows)

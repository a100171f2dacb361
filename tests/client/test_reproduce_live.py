"""`khot reproduce` for real: a server of its own, Ctrl-C, and again, until every run has a row."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import run

from khot_client.reproduce import settings
from khot_client.reproduce.settings import Settings

KHOT = Path(sys.executable).with_name("khot")
WORDS = ("reproduce", "table3", "--quick", "--seeds", "2")


@pytest.fixture
def start(tmp_path):
    """Start the command; whatever happens, it ends."""
    begun: list[subprocess.Popen[str]] = []
    ours = {name: value for name, value in os.environ.items() if name[:5] != "KHOT_"}

    def started() -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [KHOT, *WORDS, "--out", tmp_path],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=ours,
            )
        )
        return begun[-1]

    yield started
    for process in begun:
        process.kill()
        process.communicate()


def until(process: subprocess.Popen[str], start: str) -> None:
    """Read its lines up to one that begins so."""
    for line in process.stdout:
        if line.startswith(start):
            return
    raise AssertionError(process.stderr.read())


def rows(folder: Path) -> list[dict[str, str]]:
    path = folder / "table3_quick.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def using(folder: Path) -> list[str]:
    """The processes that have anything to do with a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().replace("\0", " ")
        except OSError:
            continue
        found += [words] if str(folder) in words else []
    return found


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.count("\n") == 1
    assert err.startswith("khot: stopped; ") and "Go on with: khot reproduce table3" in err


@pytest.mark.timeout(180)
def test_it_is_stopped_twice_and_every_run_has_one_row(start, tmp_path):
    process = start()
    until(process, "4 runs: 0 done before, 0 picked up, 4 submitted")
    interrupt(process)
    assert using(tmp_path) == [], "its server has ended"

    process = start()
    until(process, "4 runs: 0 done before, 4 picked up, 0 submitted")
    until(process, "1/4")
    interrupt(process)
    kept = rows(tmp_path)
    assert 1 <= len(kept) < 4

    process = start()
    out, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "")
    begun, *lines, table, page, picture = out.splitlines()
    assert begun == f"4 runs: {len(kept)} done before, {4 - len(kept)} picked up, 0 submitted"
    assert [line.split()[0] for line in lines] == [f"{i}/4" for i in range(len(kept) + 1, 5)]
    assert all(Path(path).stat().st_size for path in (table, page, picture))
    assert using(tmp_path) == []

    done = rows(tmp_path)
    assert done[: len(kept)] == kept
    assert Counter((row["method"], row["seed"]) for row in done) == {
        (method, seed): 1 for method in ("pi_st", "gumbel_sigmoid") for seed in ("0", "1")
    }
    assert all(float(row["test_loss"]) > 0 and row["torch"] and row["started"] for row in done)
    again = subprocess.run(
        [KHOT, *WORDS, "--out", tmp_path, "--json"], capture_output=True, text=True, check=True
    )
    assert len(again.stdout.splitlines()) == 4, "nothing is left to do, and no server is started"


def test_a_server_that_was_named_is_used(server, tmp_path):
    words = ("--quick", "--methods", "pi_st", "--out", str(tmp_path))
    code, out, err = run("reproduce", "figure5", *words, KHOT_ADDRESS=server)
    assert (code, err) == (0, "") and "2/2  pi_st on digits, k " in out
    assert not (tmp_path / ".state").exists()


@pytest.mark.parametrize(
    ("name", "method"), [("table4", "pi_st"), ("dvae", "simple_exact"), ("dvae", "imle")]
)
def test_vaes_leave_their_curves(server, tmp_path, name, method):
    words = ("--quick", "--methods", method, "--out", str(tmp_path))
    code, out, err = run("reproduce", name, *words, KHOT_ADDRESS=server)
    assert (code, err) == (0, "") and f"1/1  {method} on digits, seed 0: test loss " in out
    (row,) = csv.DictReader((tmp_path / f"{name}_quick.csv").read_text().splitlines())
    losses = json.loads(row["every_fifth"])
    assert len(losses) == int(row["epochs_run"]) // 5 > 0 and losses[-1] < losses[0]
    terms = [float(row[f"test_{term}"]) for term in ("reconstruction", "prior")]
    assert float(row["test_loss"]) == pytest.approx(sum(terms))
    if method == "simple_exact":
        assert float(row["test_elbo"]) == pytest.approx(-sum(terms))
    if name == "dvae":
        assert float(row["test_elbo"]) < -sum(terms) + 1e-3, "the softmax term is the smaller one"
        assert len(json.loads(row["elbo_every_fifth"])) == len(losses)


def test_the_equation_of_a_field_of_ones_own_is_found(server, tmp_path):
    x, t = np.linspace(0, 2 * np.pi, 64, endpoint=False), np.linspace(0, 2, 61)[:, None]
    waves = [(1.0, 1, 0.0), (0.5, 2, 1.0), (0.3, 3, 2.0)]
    u = sum(a * np.exp(-0.1 * q * q * t) * np.cos(q * (x - 0.7 * t) + p) for a, q, p in waves)
    np.savez(tmp_path / "drift.npz", x=x, t=t[:, 0], u=u)
    words = ("--field", str(tmp_path / "drift.npz"), "--terms", "2", "--quick")
    code, out, err = run("reproduce", "ks", *words, "--out", str(tmp_path), KHOT_ADDRESS=server)
    assert (code, err) == (0, "")
    assert "u_t = -0.7000 u_x + 0.1000 u_xx\n" in out
    assert (
        "`u_t = -0.7000 u_x + 0.1000 u_xx` | 2 of 2" in (tmp_path / "ks_drift_quick.md").read_text()
    )


def test_a_run_that_fails_is_told_and_the_others_have_rows(server, tmp_path, monkeypatch):
    known = settings.load("table3")
    diverges = {"pi_st": {"learning_rate": 1e6, "hidden": [32] * 8}}
    bad = {**known.table, "methods": diverges, "quick": {"k": 10, "epochs": 2}}
    monkeypatch.setattr(settings, "load", lambda _: Settings(bad))
    words = ("table3", "--quick", "--out", str(tmp_path))
    code, out, err = run("reproduce", *words, KHOT_ADDRESS=server)
    assert code == 3, err
    assert "failed: pi_st on digits, seed 0: job " in out
    assert err == (
        "khot: table3: 1 of 2 runs failed. "
        "Run it again to try them again, from their last checkpoints\n"
    )
    assert [row["method"] for row in rows(tmp_path)] == ["gumbel_sigmoid"]
    monkeypatch.undo()
    assert run("reproduce", *words, "--render")[0] == 0

"""KHOT_REQUIRE_ALL=1 turns what was skipped for a missing part into a failure."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

TESTS = Path(__file__).parents[1]
FILES = {
    "test_all_of_it.py": """
import pytest
pytest.skip('no grafana', allow_module_level=True)
""",
    "test_some_of_it.py": """
import pytest

def test_skips():
    pytest.skip('no prometheus')

@pytest.mark.skipif(True, reason='no postgres')
def test_is_marked(): pass

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail(): assert False

@pytest.mark.gpu
def test_there(): pass

def test_here(): pass
""",
}
REST = {"passed": 2} if torch.cuda.is_available() else {"passed": 1, "deselected": 1}


def run(tmp_path: Path, required: str) -> tuple[int, str, dict[str, int]]:
    """The exit code, the output, and what its closing line counts."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    for name, source in FILES.items():
        (tmp_path / name).write_text(source)
    options = (
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:warnings",
        "--continue-on-collection-errors",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"KHOT_REQUIRE_ALL": required},
        capture_output=True,
        text=True,
        check=False,
    )
    counts = re.findall(r"(\d+) (\w+)", done.stdout.strip().splitlines()[-1].partition(" in ")[0])
    return done.returncode, done.stdout, {what: int(number) for number, what in counts}


def test_a_skip_fails_where_everything_is_required(tmp_path):
    """But an expected failure does not, and tests for a GPU are not there without one."""
    code, out, counts = run(tmp_path, "1")
    assert code == 1
    assert counts == {"failed": 1, "errors": 2, "xfailed": 1, **REST}, out
    assert out.count("nothing may be missing; got: ") == 3
    assert all(part in out for part in ("no grafana", "no prometheus", "no postgres"))


def test_a_skip_is_a_skip_elsewhere(tmp_path):
    code, out, counts = run(tmp_path, "0")
    assert code == 0
    assert counts == {"skipped": 3, "xfailed": 1, **REST}, out

"""KHOT_REQUIRE_ALL=1 turns what was skipped for a missing part into a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SKIPPED = {
    "in a test": "import pytest\ndef test():\n    pytest.skip('no prometheus')",
    "by a mark": (
        "import pytest\n@pytest.mark.skipif(True, reason='no prometheus')\ndef test(): pass"
    ),
    "a file": "import pytest\npytest.skip('no prometheus', allow_module_level=True)",
}


def run(tmp_path: Path, source: str, required: str) -> tuple[int, str]:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"KHOT_REQUIRE_ALL": required}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("source", SKIPPED.values(), ids=SKIPPED)
def test_a_skip_fails_where_everything_is_required(tmp_path, source):
    code, out = run(tmp_path, source, "1")
    assert code != 0 and "nothing may be missing; got: " in out and "no prometheus" in out


@pytest.mark.parametrize("source", SKIPPED.values(), ids=SKIPPED)
def test_a_skip_is_a_skip_elsewhere(tmp_path, source):
    code, out = run(tmp_path, source, "0")
    assert code in (0, 5) and "1 skipped" in out


def test_an_expected_failure_is_not_a_skip(tmp_path):
    source = "import pytest\n@pytest.mark.xfail(strict=True)\ndef test(): assert False"
    code, out = run(tmp_path, source, "1")
    assert code == 0 and "1 xfailed" in out


def test_gpu_tests_are_deselected_without_a_gpu(tmp_path):
    source = "import pytest\n@pytest.mark.gpu\ndef test_there(): pass\ndef test_here(): pass"
    _, out = run(tmp_path, source + "\n", "1")
    assert "2 passed" in out or "1 deselected" in out

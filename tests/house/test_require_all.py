"""KHOT_REQUIRE_ALL=1 turns what was skipped for a missing part into a failure."""

from pathlib import Path

import pytest
import torch

pytest_plugins = ["pytester"]  # runs pytest inside this process, which has torch loaded
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


@pytest.fixture
def run(pytester, monkeypatch):
    """The exit code, the output, and how many tests ended in which way."""
    pytester.makeconftest((TESTS / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers = gpu: needs one")
    for name, source in FILES.items():
        pytester.path.joinpath(name).write_text(source)

    def run(required: str) -> tuple[int, str, dict[str, int]]:
        monkeypatch.setenv("KHOT_REQUIRE_ALL", required)
        options = ("-rs", "-p", "no:cacheprovider", "--continue-on-collection-errors")
        done = pytester.runpytest_inprocess(*options)
        return done.ret, done.stdout.str(), done.parseoutcomes()

    return run


def test_a_skip_fails_where_everything_is_required(run):
    """But an expected failure does not, and tests for a GPU are not there without one."""
    code, out, counts = run("1")
    assert code == 1
    assert counts == {"failed": 1, "errors": 2, "xfailed": 1, **REST}, out
    assert out.count("nothing may be missing; got: ") == 3
    assert all(part in out for part in ("no grafana", "no prometheus", "no postgres"))


def test_a_skip_is_a_skip_elsewhere(run):
    code, out, counts = run("0")
    assert code == 0
    assert counts == {"skipped": 3, "xfailed": 1, **REST}, out

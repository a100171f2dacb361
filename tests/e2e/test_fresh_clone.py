"""A newcomer's first minutes without a compiler: clone, `make demo`, and tests of the library.

With a compiler, CI itself is one: `.ci/run` begins with `make demo` in a clean checkout.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
TOOLS = ("sh", "make", "git", "mktemp", "rm", "touch", "awk", "env", "uname")
# What tells of kernels, and an operator of each kind on its way without them. All other tests of
# the library take that way too, beside the kernels, in every run.
TESTS = (
    "tests/khot/test_native.py",
    "tests/khot/test_registry.py",
    "tests/khot/test_sigmoid_topk.py",
    "tests/khot/test_pivotal.py",
    "tests/khot/test_pi_st.py",
    "tests/house",
)


@pytest.fixture
def clone(tmp_path):
    """A clone of HEAD with an empty pip cache, and a PATH that lacks a C compiler."""
    repository = tmp_path / "khot"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(repository)], check=True)
    # not KHOT_REQUIRE_ALL: tests of the kernels are skipped here
    kept = ("HOME", "LANG", "SSL_CERT_FILE", "TERM")
    environment = {n: v for n, v in os.environ.items() if n in kept or n.startswith("PIP_")}
    tools, temporary = tmp_path / "tools", tmp_path / "tmp"
    tools.mkdir()
    temporary.mkdir()
    for tool in TOOLS:
        (tools / tool).symlink_to(shutil.which(tool))
    # the interpreter itself: what PATH calls python3 may be a script that needs more of PATH
    (tools / "python3").symlink_to(Path(sys._base_executable).resolve())
    environment |= {"PATH": str(tools), "PIP_CACHE_DIR": str(tmp_path / "pip")}
    return repository, {**environment, "TMPDIR": str(temporary)}


def make(clone, *arguments: str) -> str:
    repository, environment = clone
    done = subprocess.run(
        ["make", *arguments],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout + done.stderr


def left_behind(clone) -> tuple[set[str], list[Path]]:
    repository, environment = clone
    command = ["git", "status", "--porcelain", "--ignored"]
    status = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    names = {line[3:] for line in status.stdout.splitlines()}
    return names, list(Path(environment["TMPDIR"]).iterdir())


def test_demo_and_tests_leave_only_the_venv(clone):
    first = make(clone, "demo")
    assert "10 of 64 features" in first and "installing" in first
    assert not list((clone[0] / "khot/_native").glob("libkhot.*.so"))
    assert "installing" not in make(clone, "demo"), "the second run installs nothing"
    closing = make(clone, "test", f"TESTS={' '.join(TESTS)}")
    assert " passed" in closing and " failed" not in closing
    names, temporary = left_behind(clone)
    assert names == {".venv/"}
    assert temporary == []

"""A newcomer's first minutes: clone and `make demo`, with and without a compiler.

Without one, the tests of the library follow, for they take other paths there; with one, CI
itself is such a clone.
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


@pytest.fixture(params=["with a compiler", "without a compiler"])
def clone(request, tmp_path):
    """A clone of HEAD with an empty pip cache, and a PATH that may lack a C compiler."""
    repository = tmp_path / "khot"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(repository)], check=True)
    kept = ("HOME", "LANG", "SSL_CERT_FILE", "TERM", "KHOT_REQUIRE_ALL")
    environment = {n: v for n, v in os.environ.items() if n in kept or n.startswith("PIP_")}
    environment |= {"PATH": os.environ["PATH"], "PIP_CACHE_DIR": str(tmp_path / "pip")}
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment["TMPDIR"] = str(temporary)
    if request.param == "without a compiler":
        tools = tmp_path / "tools"
        tools.mkdir()
        for tool in TOOLS:
            (tools / tool).symlink_to(shutil.which(tool))
        # the interpreter itself: what PATH calls python3 may be a script that needs more of PATH
        (tools / "python3").symlink_to(Path(sys._base_executable).resolve())
        environment["PATH"] = str(tools)
        environment.pop("KHOT_REQUIRE_ALL", None)  # tests of the kernels are skipped here
    elif not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        pytest.skip("needs a C compiler")
    return repository, environment, request.param


def make(clone, *arguments: str) -> str:
    repository, environment, _ = clone
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
    repository, environment, _ = clone
    command = ["git", "status", "--porcelain", "--ignored"]
    status = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    names = {line[3:] for line in status.stdout.splitlines()}
    return names, list(Path(environment["TMPDIR"]).iterdir())


def test_demo_and_tests_leave_only_the_venv(clone):
    kind = clone[2]
    first = make(clone, "demo")
    assert "10 of 64 features" in first and "installing" in first
    objects = list((clone[0] / "khot/_native").glob("libkhot.*.so"))
    assert bool(objects) == (kind == "with a compiler")
    assert "installing" not in make(clone, "demo"), "the second run installs nothing"
    if kind == "without a compiler":
        cores = "CORES=-n auto --dist loadgroup"
        closing = make(clone, "test", "TESTS=tests/khot tests/house", cores)
        assert " passed" in closing and " failed" not in closing
    names, temporary = left_behind(clone)
    assert {name for name in names if not name.startswith("khot/_native/libkhot.")} == {".venv/"}
    assert temporary == []

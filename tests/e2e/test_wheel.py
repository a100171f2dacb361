"""What ships: the wheel, built with and without a compiler, installed away from the repository.

Each wheel goes into a virtual environment of its own, and is used from a folder where the
sources cannot be seen. The torch extra is installed for real, from the constraints.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from khot._native import build

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=clean() | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean() -> dict[str, str]:
    """The environment of a user: none of this repository's settings."""
    ours = ("KHOT_NATIVE", "KHOT_REQUIRE_ALL", "PYTHONPATH", "VIRTUAL_ENV", "CC")
    return {name: value for name, value in os.environ.items() if name not in ours}


def build_wheel(tmp_path: Path, **environment: str) -> Path:
    """Build from a copy of what git would commit, so that nothing built before is picked up."""
    source = tmp_path / "source"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in run(*listed, cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(*command, "--wheel-dir", str(tmp_path / "dist"), str(source), cwd=tmp_path, **environment)
    (wheel,) = (tmp_path / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def native_wheel(tmp_path_factory):
    if build.find_compiler() is None:
        pytest.skip("needs a C compiler")
    return build_wheel(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory):
    """Built where PATH holds no compiler."""
    tmp_path = tmp_path_factory.mktemp("pure")
    empty = tmp_path / "bin"
    empty.mkdir()
    (empty / "git").symlink_to(shutil.which("git"))
    return build_wheel(tmp_path, PATH=str(empty))


class Venv:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.away = folder.parent / "elsewhere"
        self.away.mkdir()
        run(sys.executable, "-m", "venv", str(folder), cwd=self.away)

    def install(self, *requirements: str) -> None:
        pip = ("-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"))
        self.python(*pip, *requirements)

    def python(self, *arguments: str, **environment: str) -> str:
        return run(str(self.folder / "bin/python"), *arguments, cwd=self.away, **environment)

    def script(self, name: str, *arguments: str) -> str:
        return run(str(self.folder / "bin" / name), *arguments, cwd=self.away)


@pytest.fixture
def venv(tmp_path):
    return Venv(tmp_path / "venv")


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheels_say_what_they_hold(native_wheel, pure_wheel):
    assert "-py3-none-" in native_wheel.name and not native_wheel.name.endswith("-none-any.whl")
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    objects = contents(native_wheel) - contents(pure_wheel)
    built = {name for name in objects if name.endswith(".so")}
    assert "khot/_native/libkhot.baseline.so" in built
    assert not any(name.endswith(".so") for name in contents(pure_wheel))


@pytest.mark.parametrize("kind", ["native_wheel", "pure_wheel"])
def test_wheels_hold_the_packages_and_nothing_else(kind, request):
    names = contents(request.getfixturevalue(kind))
    top = {name.partition("/")[0] for name in names}
    packages = {"khot", "khot_server", "khot_client", "khot_proto"}
    assert {name for name in top if not name.endswith(".dist-info")} == packages
    assert {f"{package}/py.typed" for package in packages} <= names
    assert "khot_proto/v1/tensor_pb2.py" in names and "khot_proto/v1/tensor_pb2.pyi" in names
    migrations = {name for name in names if name.startswith("khot_server/jobs/migrations/")}
    assert any("/versions/" in name for name in migrations)


def test_base_install_is_the_client_without_torch(pure_wheel, venv):
    venv.install(str(pure_wheel))
    installed = venv.python("-m", "pip", "list")
    assert "torch" not in installed and "scipy" not in installed
    assert "khot 0." in venv.script("khot", "--version")
    use = "import numpy as np, khot_client; from khot_proto import *; "
    use += "print(from_tensor(to_tensor(np.arange(3.0))).tolist())"
    assert venv.python("-c", use).strip() == "[0.0, 1.0, 2.0]"
    report = "try:\n    import khot\nexcept ImportError as error:\n    print(error)"
    assert "Install it with: pip install 'khot[torch]'" in venv.python("-c", report)


USE = """
import khot, pathlib, torch
assert "site-packages" in khot.__file__, khot.__file__
x = torch.randn(4, 100, requires_grad=True)
p = khot.sigmoid_topk(x, 10)
p.square().sum().backward()
assert torch.allclose(p.sum(-1), torch.tensor(10.0)) and x.grad.abs().sum() > 0
from khot.testing import check_relaxation
check_relaxation(khot.sigmoid_topk)
print(khot.native_info().in_use, khot.native_info().reason)
"""


def test_library_with_and_without_kernels(native_wheel, pure_wheel, venv):
    venv.install(f"khot[torch] @ {native_wheel.as_uri()}")
    assert venv.python("-c", USE).startswith("True ")
    assert venv.python("-c", USE, KHOT_NATIVE="baseline").startswith("True ")
    assert venv.python("-c", USE, KHOT_NATIVE="0").startswith("False KHOT_NATIVE=0")
    venv.install("--no-deps", "--force-reinstall", str(pure_wheel))
    assert venv.python("-c", USE).startswith("False no kernels were built")

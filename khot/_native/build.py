"""Compile the C kernels into shared objects beside this file.

Standard library only: `hatch_build.py` loads this file while the package is being
built, before anything is installed, and `make install` runs it again whenever a
source changes. Every `*.c` here goes into one object per variant; the loader
(`library.py`) picks the variant that the CPU supports. The objects use the plain
C ABI and link neither Python nor torch, so one serves all their versions.

No compiler is no error: nothing is built, and khot runs on torch operations.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-std=c11",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    # what lets the loops over exp and division vectorise; NaN and inf keep their meaning
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
VARIANTS = {"baseline": (), "avx2": ("-mavx2", "-mfma")}


def sources() -> list[Path]:
    """The C files of the kernels."""
    return sorted(HERE.glob("*.c"))


def object_path(variant: str) -> Path:
    """Where the object of a variant lies."""
    return HERE / f"libkhot.{variant}.so"


def find_compiler() -> list[str] | None:
    """The command of the C compiler, from $CC or the usual names, if there is one."""
    if chosen := shlex.split(os.environ.get("CC", "")):
        return chosen if shutil.which(chosen[0]) else None
    return next(([path] for name in COMPILERS if (path := shutil.which(name))), None)


def build() -> list[Path]:
    """Compile every variant this machine can use; return the objects, maybe none."""
    compiler = find_compiler()
    if compiler is None:
        return []
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    variants = VARIANTS if x86 else {"baseline": ()}
    return [_compile(compiler, name, flags) for name, flags in variants.items()]


def _compile(compiler: list[str], variant: str, flags: tuple[str, ...]) -> Path:
    """Compile one variant into a temporary file and rename it, so no reader sees half."""
    target = object_path(variant)
    handle, name = tempfile.mkstemp(dir=HERE, suffix=".so.tmp")
    os.close(handle)
    temporary = Path(name)
    files = [str(path) for path in sources()]
    try:
        # Apple's clang has no OpenMP of its own; without it a kernel runs on one thread.
        for openmp in (("-fopenmp",), ("-Wno-unknown-pragmas",)):
            command = [*compiler, *FLAGS, *flags, *openmp, *files, "-o", name, "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                temporary.chmod(0o755)
                return temporary.replace(target)
        raise OSError(f"khot: {shlex.join(command)} must succeed; got\n{done.stderr}")
    finally:
        temporary.unlink(missing_ok=True)


def main() -> None:
    """Build, and say what was built. A compiler that fails is reported, not fatal."""
    try:
        built = build()
    except OSError as error:
        print(error, file=sys.stderr)
        built = []
    names = ", ".join(path.name for path in built)
    print(f"khot native: {names or 'nothing built; khot will use its pure-torch path'}")


if __name__ == "__main__":
    main()

"""Generate the Python code of the .proto files, or check that it is up to date.

`make proto` writes it beside the .proto files, where it is checked in: the wheel
must not need a generator. `make proto-check` (--check) writes it elsewhere and
compares.
"""

import argparse
import difflib
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def generate(out: Path) -> None:
    """Write the generated code of every .proto file below `out`."""
    try:
        import grpc_tools
        from grpc_tools import protoc
    except ModuleNotFoundError:
        sys.exit("proto: Python must be older than 3.14, for the pinned grpcio-tools; got a newer")
    files = sorted(path.relative_to(HERE).as_posix() for path in HERE.rglob("*.proto"))
    services = [name for name in files if "\nservice " in (HERE / name).read_text()]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    for arguments in (
        (f"--python_out={out}", f"--pyi_out={out}", *files),
        (f"--grpc_python_out={out}", *services),
    ):
        if protoc.main(["protoc", f"-I{HERE}", f"-I{well_known}", *arguments]):
            sys.exit("proto: the .proto files must compile; see above")


def generated(root: Path) -> dict[str, str]:
    """The generated files below `root`, by their path."""
    paths = (path for ending in ("py", "pyi") for path in root.rglob(f"*_pb2*.{ending}"))
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


def main() -> None:
    """Generate, or check and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    if not parser.parse_args().check:
        generate(HERE)
        return
    with tempfile.TemporaryDirectory() as out:
        generate(Path(out))
        wanted, found = generated(Path(out)), generated(HERE)
    for name in sorted(wanted.keys() | found.keys()):
        lines = (found.get(name, "").splitlines(), wanted.get(name, "").splitlines())
        sys.stdout.writelines(
            line + "\n" for line in difflib.unified_diff(*lines, name, "regenerated", lineterm="")
        )
    if wanted != found:
        sys.exit("proto: generated code must be what the .proto files say; run: make proto")
    print(f"proto: {len(found)} generated files agree with the .proto files")


if __name__ == "__main__":
    main()

"""Reads an uploaded file, in a process of its own: `python -m khot_server.datasets.parse`.

What strangers send is read here and nowhere else: within limits of memory and time, in a
process that holds nothing. It writes the table to a directory that must not be there yet
(`stored`), and prints one line of JSON: `{"summary": ...}` without the columns, or
`{"error": ...}`. It ends when its input does, for then whoever asked is gone.
"""

import argparse
import contextlib
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from khot_server.datasets.limits import Limits
from khot_server.datasets.read_csv import read_csv
from khot_server.datasets.read_npz import read_npz
from khot_server.datasets.read_parquet import read_parquet
from khot_server.datasets.records import BadTable, Format, Summary
from khot_server.jobs import lifeline

READERS: dict[Format, Callable[[Path, Path, str, Limits], Summary]] = {
    Format.NPZ: read_npz,
    Format.CSV: read_csv,
    Format.PARQUET: read_parquet,
}


def main() -> None:
    """Read a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", type=Format, choices=list(Format), required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--max-bytes", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--cpu-s", type=int, required=True)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    lifeline.watch(sys.stdin.fileno())
    if options.format is Format.PARQUET:
        _load_pyarrow()
    _limit(options.memory_bytes, options.cpu_s)
    limits = Limits(max_bytes=options.max_bytes)
    try:
        summary = READERS[options.format](options.file, options.out, options.sha256, limits)
        answer = {"summary": summary.without_columns().to_json()}
    except BadTable as error:
        answer = {"error": str(error)}
    except MemoryError:
        must = f"table: must be read within {options.memory_bytes} bytes of memory"
        answer = {"error": f"{must}; got one that needs more"}
    except OSError as error:
        answer = {"storage": str(error)}
    print(json.dumps(answer), flush=True)
    os._exit(0)  # the lifeline is still watched


def _load_pyarrow() -> None:
    """Before the limits, for it takes address space by the gigabyte and uses little of it."""
    with contextlib.suppress(ImportError):  # which `read_parquet` tells
        import pyarrow
        import pyarrow.parquet

        pyarrow.set_cpu_count(1)
        pyarrow.set_io_thread_count(1)


def _limit(memory_bytes: int, cpu_s: int) -> None:
    """Bound this process; of memory, what it takes from now on."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    memory = taken + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))  # SIGXCPU, which tells why
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()

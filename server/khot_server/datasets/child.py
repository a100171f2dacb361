"""The parser's process, from the side of the one who asks."""

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

from khot_server.datasets.records import BadTable, Header, Summary

# One heap and one thread: address space is limited, and each would take more of it.
ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, kw_only=True)
class ParseLimits:
    """What reading a file may take.

    Attributes:
        max_bytes: of the values, uncompressed.
        memory_bytes: of the process, beside the interpreter.
        time_s: on the clock, and on a core.
        at_once: files that are read side by side; others wait.
    """

    max_bytes: int = 2 << 30
    memory_bytes: int = 4 << 30
    time_s: float = 300.0
    at_once: int = 2


class Parser:
    """Runs `khot_server.datasets.parse`, some at a time."""

    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self._places = asyncio.Semaphore(limits.at_once)

    async def parse(self, header: Header, file: Path, out: Path) -> Summary:
        """Write the table in `file` to the directory `out`; return its summary without columns.

        Cancelled, it leaves no process behind; what there is of `out` is the caller's to remove.

        Raises:
            BadTable: there is none that can be read within the limits.
            OSError: the disk is full, or does not work.
        """
        async with self._places:
            process = await self._start(header, file, out)
            try:
                said = await asyncio.wait_for(_ended(process), self._limits.time_s)
            except TimeoutError:
                raise self._too_slow() from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                status = await process.wait()
        return self._answer(status, said)

    async def _start(self, header: Header, file: Path, out: Path) -> Process:
        options = {
            "format": header.format.value,
            "sha256": header.sha256,
            "max-bytes": self._limits.max_bytes,
            "memory-bytes": self._limits.memory_bytes,
            "cpu-s": math.ceil(self._limits.time_s),
        }
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "khot_server.datasets.parse"),
            *(f"--{name}={value}" for name, value in options.items()),
            *(str(file), str(out)),
            stdin=PIPE,  # its lifeline: nothing is written
            stdout=PIPE,
            env=os.environ | ENVIRONMENT,
        )

    def _answer(self, status: int, said: bytes) -> Summary:
        if status == -signal.SIGXCPU:
            raise self._too_slow()
        if status or not said:
            # such as a library that a file made crash, or the system out of memory
            must = "must be one that can be read"
            raise BadTable(f"table: {must}; got one that ended its reader ({status})")
        answer: dict[str, str] = json.loads(said)
        if "storage" in answer:
            raise OSError(answer["storage"])
        if "error" in answer:
            raise BadTable(answer["error"])
        return Summary.from_json(answer["summary"])

    def _too_slow(self) -> BadTable:
        must = f"must be read within {self._limits.time_s:g} s"
        return BadTable(f"table: {must}; got one that takes longer")


async def _ended(process: Process) -> bytes:
    """What it said, once it has ended."""
    assert process.stdout is not None
    said = await process.stdout.read()
    await process.wait()
    return said

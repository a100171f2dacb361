"""The GPUs, as nvidia-smi tells of them: it knows of jobs as well as of engines.

It takes longer than a scrape may, so it is asked now and then, and the last answer exported.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterable

from khot_server.metrics.instruments import Labels

EVERY_S = 10.0
_COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,memory.used,utilization.gpu",
    "--format=csv,noheader,nounits",
)


class Gpus:
    """The GPUs among `devices`.

    Attributes:
        memory: in use, in bytes.
        utilization: share of the time, lately.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self._devices = {
            device.partition(":")[2] or "0" for device in devices if device.startswith("cuda")
        }
        self.memory: dict[Labels, float] = {}
        self.utilization: dict[Labels, float] = {}

    async def watch(self) -> None:
        """Ask until cancelled; return at once where there is nothing to ask, or nobody."""
        while self._devices:
            try:
                self._read(await asyncio.to_thread(_asked))
            except OSError:
                return
            except subprocess.TimeoutExpired:
                self._read("")
            await asyncio.sleep(EVERY_S)

    def _read(self, text: str) -> None:
        memory: dict[Labels, float] = {}
        utilization: dict[Labels, float] = {}
        for line in text.splitlines():
            with contextlib.suppress(ValueError):  # "[N/A]" of one that does not tell
                index, used_mib, percent = (part.strip() for part in line.split(","))
                if index in self._devices:
                    memory[(f"cuda:{index}",)] = float(used_mib) * (1 << 20)
                    utilization[(f"cuda:{index}",)] = float(percent) / 100
        self.memory, self.utilization = memory, utilization


def _asked() -> str:
    done = subprocess.run(
        _COMMAND,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=EVERY_S + 1,
        text=True,
        check=False,
    )
    return done.stdout

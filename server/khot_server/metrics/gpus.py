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
    "--query-gpu=index,uuid,memory.used,utilization.gpu",
    "--format=csv,noheader,nounits",
)


class Gpus:
    """The GPUs among `devices`.

    Args:
        devices: as torch names them.
        visible: CUDA_VISIBLE_DEVICES, which hides GPUs from torch and numbers the others anew, and
            which nvidia-smi pays no heed to.

    Attributes:
        memory: in use, in bytes.
        utilization: share of the time, lately.
    """

    def __init__(self, devices: Iterable[str], visible: str | None = None) -> None:
        numbers = [d.partition(":")[2] or "0" for d in devices if d.startswith("cuda")]
        # torch's name of each, by what nvidia-smi calls it: a number, or the beginning of its UUID
        self._devices = {_theirs(number, visible): f"cuda:{number}" for number in numbers}
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
                index, uuid, used_mib, percent = (part.strip() for part in line.split(","))
                for known, device in self._devices.items():
                    if known == index or uuid.startswith(known):
                        memory[(device,)] = float(used_mib) * (1 << 20)
                        utilization[(device,)] = float(percent) / 100
        self.memory, self.utilization = memory, utilization


def _theirs(number: str, visible: str | None) -> str:
    if not visible:
        return number
    known = dict(enumerate(visible.split(",")))
    return known.get(int(number), "").strip() or "none"


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

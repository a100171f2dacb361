"""What is asked of nvidia-smi, of which there is only a stand-in here."""

import asyncio
from pathlib import Path

import pytest

from khot_server.metrics import gpus
from khot_server.metrics.gpus import Gpus

SAID = """\
0, GPU-a1b2, 1024, 37
1, GPU-a1c3, 2048, [N/A]
2, GPU-9f00, 4096, 100
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of its name that says SAID, and notes what it was asked."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat <<END\n{SAID}END\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(gpus, "EVERY_S", 0.0)
    return tmp_path / "asked"


async def watch_until_told(watched: Gpus) -> None:
    task = asyncio.create_task(watched.watch())
    while not watched.memory:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_gpus_of_the_engines_are_told_of_and_no_others(nvidia_smi):
    watched = Gpus(("cpu", "cuda", "cuda:1"))
    asyncio.run(watch_until_told(watched))
    assert watched.memory == {("cuda:0",): 1024 * 2.0**20, ("cuda:1",): 2048 * 2.0**20}
    assert watched.utilization == {("cuda:0",): 0.37}
    asked = nvidia_smi.read_text().splitlines()[0]
    assert "index,uuid,memory.used,utilization.gpu" in asked and "nounits" in asked


@pytest.mark.parametrize("visible", ["2,0", " 2 , 0,", "GPU-9f,GPU-a1b2"])
@pytest.mark.usefixtures("nvidia_smi")
def test_gpus_have_the_numbers_that_torch_gives_them(visible):
    watched = Gpus(("cuda", "cuda:1", "cuda:2"), visible)
    asyncio.run(watch_until_told(watched))
    assert watched.utilization == {("cuda:0",): 1.0, ("cuda:1",): 0.37}


@pytest.mark.parametrize("devices", [("cpu",), ("cuda",)], ids=str)
def test_where_there_is_none_or_nobody_to_ask_nothing_is_told(devices, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    watched = Gpus(devices)
    asyncio.run(asyncio.wait_for(watched.watch(), 10))
    assert watched.memory == watched.utilization == {}

"""The peak of a call is that of what it holds at once, freed or not."""

import subprocess
import sys
from pathlib import Path

import pytest

MB = 1_000_000
HELD = "[torch.ones(6_250_000) + torch.ones(6_250_000) for _ in range(3)] and None"

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="not Linux")


def peak_of(expression: str) -> int:
    """Bytes, of a process of its own: what tests before it have freed is there to be had again."""
    code = f"import torch, peak_memory; print(peak_memory.peak_bytes(lambda: {expression}))"
    command = [sys.executable, "-c", code]
    here = Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_peak_is_what_is_held_at_once():
    # five tensors of 25 MB: two results that stay, and what makes the third
    assert peak_of(HELD) == pytest.approx(125 * MB, rel=0.1)


def test_nothing_is_nearly_nothing():
    assert peak_of("None") < MB

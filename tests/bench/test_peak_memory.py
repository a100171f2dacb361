"""The peak of a call is that of what it holds at once, freed or not."""

import runpy
from pathlib import Path

import pytest
import torch

MEMORY = runpy.run_path(str(Path(__file__).with_name("peak_memory.py")))
MB = 1_000_000

pytestmark = pytest.mark.skipif(not MEMORY["measurable"](), reason="not Linux")


def test_peak_is_what_is_held_at_once():
    def run():
        for _ in range(3):
            torch.ones(25 * MB // 4) + torch.ones(25 * MB // 4)

    assert MEMORY["peak_bytes"](run) == pytest.approx(75 * MB, rel=0.1)


def test_nothing_is_nearly_nothing():
    assert MEMORY["peak_bytes"](lambda: None) < MB

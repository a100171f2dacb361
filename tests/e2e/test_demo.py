"""`make demo` shows what it says."""

import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_chooses_ten_telling_pixels():
    script = Path(__file__).with_name("demo.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert "soft mask sums to 10.000000" in done.stdout
    learned, random, every = map(float, re.findall(r"([\d.]+)%\n", done.stdout))
    assert random + 10 < learned < every

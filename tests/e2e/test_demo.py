"""`make demo` shows what it says, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = [sys.executable, str(Path(__file__).with_name("demo.py"))]


@pytest.fixture
def demo(tmp_path):
    """The demo as a process, whose temporary files all go to `tmp_path`."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        DEMO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()
    for pid in processes(tmp_path):  # none, unless the test failed
        os.kill(pid, signal.SIGKILL)


def processes(tmp_path: Path) -> list[int]:
    """Those that know of the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(tmp_path) in path.read_bytes():
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # gone since it was listed
    return found


def left_behind(tmp_path: Path) -> tuple[list[Path], list[int]]:
    return list(tmp_path.iterdir()), processes(tmp_path)


def test_the_demo_chooses_ten_telling_pixels(demo, tmp_path):
    out, err = demo.communicate(timeout=100)
    assert demo.returncode == 0, out + err
    assert err == ""
    assert "[0.953, 0.731, 0.269, 0.047], sum 2.000000" in out
    assert "with its seed the same again" in out
    assert out.count("██") == 10 and out.count("· ") == 54
    (accuracy,) = re.findall(r"^test: accuracy ([\d.]+)%", out, re.MULTILINE)
    assert float(accuracy) > 88
    assert out.endswith("server  stopped\n")
    assert left_behind(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_an_interrupted_demo_leaves_nothing_behind(demo, tmp_path, number, code):
    for line in demo.stdout:
        if line.startswith("job "):
            break
    files, pids = left_behind(tmp_path)
    assert files and pids, "the check can fail"
    demo.send_signal(number)
    out, err = demo.communicate(timeout=60)
    assert demo.returncode == code, out + err
    assert "Traceback" not in err
    assert left_behind(tmp_path) == ([], [])

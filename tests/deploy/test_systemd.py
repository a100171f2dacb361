"""The systemd unit: what it says is understood, and what it starts works with its environment."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_until

from khot_client import Client, FeatureSelection, KhotError
from khot_server.config import Settings
from khot_server.supervisor import with_ports

FOLDER = Path(__file__).parents[2] / "deploy/systemd"
UNIT = (FOLDER / "khot.service").read_text()
INSTALLED = "/opt/khot/bin"


def setting(name: str) -> str:
    """The value that the unit gives a key."""
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


def variables() -> dict[str, str]:
    """The variables of the environment file, as systemd reads them."""
    lines = (FOLDER / "khot.env").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


@pytest.fixture
def unit(tmp_path):
    """The unit with a program that is there, which systemd looks for."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    path = tmp_path / "khot.service"
    path.write_text(UNIT.replace(f"{INSTALLED}/khot-server", "/bin/true"))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_understands_every_line(unit):
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    unit.write_text(unit.read_text().replace("OOMPolicy", "OomPolicy"))
    assert "Unknown key" in analyze("verify", str(unit)).stderr, "it can fail"


def test_systemd_finds_little_exposed(unit):
    done = analyze("security", "--offline=true", "--threshold=20", str(unit))
    assert done.returncode == 0, done.stdout[-2000:]


def test_every_variable_is_a_setting():
    text = (FOLDER / "khot.env").read_text()
    named = set(re.findall(r"^#?(KHOT_\w+)=", text, re.MULTILINE))
    assert named and named <= {f"KHOT_{name.upper()}" for name in Settings.model_fields}


def test_it_has_time_to_drain():
    # calls have --drain-s and a few seconds, checkpoints half a minute beside that
    assert int(setting("TimeoutStopSec")) > Settings.model_fields["drain_s"].default + 30
    assert setting("KillSignal") == "SIGTERM" and setting("KillMode") == "mixed"


@pytest.mark.timeout(300)  # it compiles our sources anew, and keeps nothing of that
def test_what_it_starts_works_with_its_environment(tmp_path):
    """With those variables and none besides; only ports and folders are of this test."""
    given = variables()
    assert setting("EnvironmentFile") == "/etc/khot/khot.env"
    assert given["KHOT_STATE_DIR"] == f"/var/lib/{setting('StateDirectory')}"
    nothing_asked_for = {"KHOT_ADDRESS": "127.0.0.1:0", "KHOT_METRICS_ADDRESS": "127.0.0.1:0"}
    chosen, held = with_ports(Settings(address="127.0.0.1:0", metrics_address="127.0.0.1:0"))
    assert nothing_asked_for.keys() <= given.keys()
    given |= {"KHOT_ADDRESS": chosen.address, "KHOT_METRICS_ADDRESS": chosen.metrics_address}
    given |= {"KHOT_STATE_DIR": str(tmp_path / "state"), "MPLCONFIGDIR": str(tmp_path / "fonts")}
    # what systemd itself adds for User=khot
    systemd = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "USER": "khot"}
    systemd |= {"LOGNAME": "khot", "HOME": "/nonexistent", "SHELL": "/usr/sbin/nologin"}
    systemd["PYTHONDONTWRITEBYTECODE"] = "1"  # where it is installed, it may not write
    here, log = str(Path(sys.executable).parent), tmp_path / "log"
    said = log.open("wb")
    process = subprocess.Popen(
        shlex.split(setting("ExecStart").replace(INSTALLED, here)),
        env=given | systemd | {"TMPDIR": str(tmp_path)},  # which PrivateTmp makes /tmp
        cwd="/",
        umask=int(setting("UMask"), 8),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=said,
    )
    try:
        with Client(chosen.address) as client:

            def serves() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return client.sample([0.0] * 4, 2).z.sum() == 2
                except KhotError:
                    return False

            wait_until(serves, "the service")
            quick = FeatureSelection("digits", k=10, epochs=2, references=False)
            assert client.submit(quick).wait(timeout_s=60).features.size == 10
        process.send_signal(getattr(signal, setting("KillSignal")))
        assert process.wait(60) == 0
        assert '"event": "draining"' in log.read_text(), "a line of JSON for each event"
        assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    finally:
        print(log.read_text())
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.close()
        for holder in held:
            holder.close()

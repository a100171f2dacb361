"""The `khot` command."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import khot_client
from khot_client.cli import app, machine

KHOT = [sys.executable, "-c", "from khot_client.cli import app; app(prog_name='khot')"]


def run(*arguments: str, stdin: str | None = None, **environment: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, input=stdin, env=environment, prog_name="khot")
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def ask(server):
    """Run a command against the server."""

    def asked(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        return run(*arguments, stdin=stdin, KHOT_ADDRESS=server)

    return asked


def test_version():
    assert run("--version") == (0, f"khot {khot_client.__version__}\n", "")


def test_without_a_command_it_teaches():
    _, out, err = run()
    for word in ("Usage", "up", "sample", "submit", "watch", "info", "Start a server"):
        assert word in out + err


def test_info_names_what_a_bug_report_needs():
    code, out, _ = run("info")
    assert code == 0
    for name in ("python", "grpcio", "protobuf", "numpy", "torch"):
        assert name in out


def test_info_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(machine, "_REPORTED", ("no-such-package",))
    assert "not installed" in run("info")[1]


COMMANDS = [
    ("up",),
    ("sample",),
    ("relax",),
    ("operators",),
    ("submit", "feature-selection"),
    ("watch",),
    ("status",),
    ("info",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_an_example(command):
    code, out, _ = run(*command, "--help")
    assert code == 0 and f"Example: khot {' '.join(command)}" in out


def test_the_list_of_commands_is_whole():
    assert {name.name or name.callback.__name__ for name in app.registered_commands} == {
        name for (name, *rest) in COMMANDS if not rest
    }


def test_sample_prints_masks_with_k_ones(ask):
    code, out, err = ask("sample", "--n", "10", "-k", "3")
    assert code == 0 and sorted(out.split()) == ["0"] * 7 + ["1"] * 3
    (seed,) = re.findall(r"^seed (\d+)\n$", err)
    assert ask("sample", "--n", "10", "-k", "3", "--seed", seed) == (0, out, "")


def test_relax_prints_soft_values_of_the_arguments(ask):
    code, out, _ = ask("relax", "-k", "2", "--tau", "0.5", "--", "2.0", "1.0", "0.0", "-1.0")
    assert (code, out) == (0, "0.952574 0.731059 0.268941 0.047426\n")


def test_rows_are_read_from_standard_input(ask):
    code, out, _ = ask("sample", "-k", "1", "--seed", "1", stdin="9 0 0\n\n0 0 9\n")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and [row.count("1") for row in rows] == [1, 1]


def test_operators_are_a_table(ask):
    code, out, _ = ask("operators")
    assert code == 0 and "sigmoid_topk" in out and "exact: true" in out


def test_submit_and_watch_draw_the_chosen_features(ask):
    code, out, err = ask(
        "submit", "feature-selection", "--dataset", "digits", "-k", "10", "--epochs", "1", "--watch"
    )
    assert code == 0, err
    assert out.count("██") == 10 and out.count("· ") == 54
    assert "succeeded" in out and re.search(r"test accuracy \d+\.\d%, test loss", out)
    job_id = out.splitlines()[0]
    assert ask("watch", job_id) == (0, out.partition("\n")[2], "")
    code, out, _ = ask("status", job_id)
    assert code == 0 and "SUCCEEDED" in out and out.count("██") == 10


def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(server):
    command = [*KHOT, "submit", "feature-selection", "--epochs", "5", "--watch"]
    environment = os.environ | {"KHOT_ADDRESS": server}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        job_id = process.stdout.readline().strip()
        assert process.stdout.readline() == "queued\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"The job goes on. Watch it again with: khot watch {job_id} --address {server}" in err
    assert "Traceback" not in err
    with khot_client.Client(server) as client:
        assert client.job(job_id).wait().features.shape == (10,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sample", "-k", "11", "--n", "10"), "k must be in"),
        (("sample", "-k", "1", "--n", "3", "--", "1.0"), "must come from --n or from arguments"),
        (("relax", "-k", "1"), "must be lines of equally many numbers"),
        (("status", "nope"), "Check the id"),
        (("watch", "nope"), "Check the id"),
        (("submit", "feature-selection", "-k", "64"), r"must be in \[1, 63\]; got 64"),
        (("operators", "--address", "nonsense"), "must be host:port"),
        (("operators", "--ca", "/no/such/file"), "must be True or the path of a PEM file"),
        (("operators", "--address", "127.0.0.1:1"), "`khot up` starts a server"),
    ],
)
def test_errors_are_one_line_on_stderr(ask, arguments, message):
    code, out, err = ask(*arguments, stdin="1 2\n3\n")
    assert (code, out) == (1, "")
    assert err.startswith("khot: ") and err.count("\n") == 1
    assert re.search(message, err)


def test_up_becomes_the_server(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append((path, arguments)))
    assert run("up", "--address", "127.0.0.1:7", "--", "--device", "cpu")[0] == 0
    ((path, arguments),) = started
    assert Path(path) == Path(sys.executable).parent / "khot-server"
    assert arguments == [path, "--address", "127.0.0.1:7", "--device", "cpu"]


def test_up_says_how_to_install_the_server(monkeypatch):
    monkeypatch.setattr(machine, "_SERVER_NEEDS", ("no_such_package",))
    monkeypatch.setenv("PATH", "")
    code, _, err = run("up")
    assert code == 1 and "pip install 'khot[server]'" in err

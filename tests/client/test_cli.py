"""The `khot` command."""

from typer.testing import CliRunner

import khot_client
from khot_client.cli import app


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_version():
    assert run("--version") == (0, f"khot {khot_client.__version__}\n")


def test_without_a_command_it_helps():
    _, out = run()
    assert "Usage" in out and "info" in out


def test_info_names_what_a_bug_report_needs():
    code, out = run("info")
    assert code == 0
    for name in ("python", "grpcio", "protobuf", "numpy", "torch"):
        assert name in out


def test_info_says_what_is_missing(monkeypatch):
    monkeypatch.setattr("khot_client.cli._REPORTED", ("no-such-package",))
    assert "not installed" in run("info")[1]

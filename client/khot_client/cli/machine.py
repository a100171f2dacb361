"""`khot up` and `khot info`: what concerns this machine and no server elsewhere."""

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from khot_client.errors import BadSettings

# What a bug report should name; torch is optional and only needed beside the library.
_REPORTED = ("khot", "grpcio", "protobuf", "numpy", "torch")
# Some of what the server extra brings. The command itself is there without it.
_SERVER_NEEDS = ("torch", "sqlalchemy", "pydantic_settings", "structlog")


def up(
    context: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to serve.", show_default="127.0.0.1:50551"),
    ] = None,
) -> None:
    """Run a server on this machine until Ctrl-C.

    What follows -- goes to khot-server; `khot-server --help` lists it.

    Example: khot up --address 127.0.0.1:50600 -- --state-dir ./state
    """
    server = _server()
    arguments = [*(["--address", address] if address else []), *context.args]
    # In this very process, so that signals and the exit code are the server's own.
    os.execv(server, [server, *arguments])


def _server() -> str:
    """The khot-server of this environment, or else the one on PATH."""
    beside = Path(sys.executable).parent / "khot-server"
    if beside.is_file() and all(find_spec(name) for name in _SERVER_NEEDS):
        return str(beside)
    found = shutil.which("khot-server")
    if found is None or Path(found).resolve() == beside.resolve():
        raise BadSettings(
            "up: khot-server must be installed; got a client only. "
            "Install it with: pip install 'khot[server]'"
        )
    return found


def info() -> None:
    """Show the versions that a bug report should name.

    Example: khot info
    """
    table = Table("package", "version", title="khot")
    table.add_row("python", f"{platform.python_version()} on {platform.platform()}")
    for name in _REPORTED:
        table.add_row(name, _installed(name))
    Console().print(table)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

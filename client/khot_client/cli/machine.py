"""`khot up`, `khot token` and `khot info`: what concerns this machine and no server elsewhere."""

import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from khot_client.cli.output import print_facts, print_json
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

    Other options go to khot-server; `khot-server --help` lists them.

    Example: khot up --address 127.0.0.1:50600 --state-dir ./state
    """
    _become("up", *(["--address", address] if address else []), *context.args)


def new_token(
    tenant: Annotated[str, typer.Option(help="Whose jobs and limits it stands for.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="sample, jobs or admin; may be repeated.",
            show_default="sample and jobs",
            autocompletion=lambda: ["sample", "jobs", "admin"],
        ),
    ] = None,
) -> None:
    """Make a token for a server of yours, as `khot-server new-token` does.

    The token is shown once, on stderr; its entry for the server's --tokens file, which holds
    only a hash of it, goes to stdout.

    Example: khot token new --tenant vision --scope sample >> tokens.toml
    """
    scopes = [word for name in scope or () for word in ("--scope", name)]
    _become("token new", "new-token", "--tenant", tenant, *scopes)


def _become(who: str, *arguments: str) -> None:
    """Go on as khot-server, in this very process: signals and the exit code are its own."""
    server = find_server(who)
    sys.stdout.flush()
    os.execv(server, [server, *arguments])


def find_server(who: str) -> str:
    """The khot-server of this environment, or else the one on PATH.

    Raises:
        BadSettings: there is none.
    """
    beside = Path(sys.executable).parent / "khot-server"
    if beside.is_file() and all(find_spec(name) for name in _SERVER_NEEDS):
        return str(beside)
    found = shutil.which("khot-server")
    if found is None or Path(found).resolve() == beside.resolve():
        raise BadSettings(
            f"{who}: khot-server must be installed; got a client only. "
            "Install it with: pip install 'khot[server]'"
        )
    return found


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the versions that a bug report should name.

    Example: khot info
    """
    facts = {"python": f"{platform.python_version()} on {platform.platform()}"}
    facts |= {name: _installed(name) for name in _REPORTED}
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

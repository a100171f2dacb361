"""The `khot` command line."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from khot_client import __version__

app = typer.Typer(
    help="k-hot layers as a service: choose k of n things, differentiably.",
    no_args_is_help=True,
    add_completion=False,
)

# What a bug report should name; torch is optional and only needed beside the library.
_REPORTED = ("khot", "grpcio", "protobuf", "numpy", "torch")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"khot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def info() -> None:
    """Show the versions that a bug report should name."""
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

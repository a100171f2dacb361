"""The `khot` command line: which commands there are, and what becomes of errors.

Whatever a command does, an error of the client is one line on stderr and exit code 1.
"""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from khot_client import __version__
from khot_client.cli import jobs, machine, sampling
from khot_client.errors import KhotError


class _Group(TyperGroup):
    """Commands whose errors are told in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KhotError as error:
            typer.echo(f"khot: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(1) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"khot {__version__}")
        raise typer.Exit


app = typer.Typer(cls=_Group, no_args_is_help=True, add_completion=False)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """k-hot layers as a service: choose k of n things, differentiably.

    Start a server with `khot up`; then, in another terminal, try
    `khot sample --n 10 -k 3` and `khot submit feature-selection -k 10 --watch`.
    """


submit = typer.Typer(no_args_is_help=True, help="Submit a training job.")
submit.command("feature-selection")(jobs.feature_selection)

app.command(context_settings={"allow_extra_args": True})(machine.up)
app.command()(sampling.sample)
app.command()(sampling.relax)
app.command()(sampling.operators)
app.add_typer(submit, name="submit")
app.command()(jobs.watch)
app.command()(jobs.status)
app.command()(machine.info)

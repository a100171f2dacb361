"""The `khot` command line: which commands there are.

Whatever a command does, an error is one line on stderr and an exit code of `faults.py`.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from khot_client import __version__
from khot_client.cli import (
    data,
    findings,
    groups,
    jobs,
    machine,
    reproduce,
    sampling,
    status,
    submit,
)
from khot_client.cli.faults import MEANINGS, told

_EPILOG = "Exit codes:\n\n" + "\n\n".join(f"{code:>3}  {text}" for code, text in MEANINGS.items())


class _Khot(TyperGroup):
    """Commands whose errors are told in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a picture is no reason to fail
        with told(ctx):
            return super().invoke(ctx)


class _Submit(TyperGroup):
    """`khot submit -f job.toml` is `khot submit file -f job.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] != "--help":
            args = ["file", *args]
        return super().parse_args(ctx, args)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"khot {__version__}")
        raise typer.Exit


# A traceback is shown by --debug alone, and never with the values of variables: tokens are some.
app = typer.Typer(cls=_Khot, no_args_is_help=True, pretty_exceptions_enable=False, epilog=_EPILOG)


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


def _group(name: str, text: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    group = typer.Typer(cls=cls, no_args_is_help=True, help=text)
    app.add_typer(group, name=name)
    return group


_TO_THE_SERVER = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(context_settings=_TO_THE_SERVER)(machine.up)
app.command()(status.status)
app.command()(sampling.sample)
app.command()(sampling.relax)
app.command()(sampling.operators)

_submit = _group("submit", "Submit a job: of a kind, or with -f job.toml of a file.", _Submit)
_submit.command("feature-selection")(submit.feature_selection)
_submit.command()(submit.vae)
_submit.command("sparse-regression")(submit.sparse_regression)
_submit.command()(submit.file)

app.command("jobs")(jobs.jobs)
_job = _group("job", "Show, steer and get what a job has found.")
for _command in (
    jobs.show,
    jobs.watch,
    findings.result,
    findings.plot,
    findings.logs,
    findings.download,
    jobs.cancel,
    jobs.pause,
    jobs.resume,
    jobs.retry,
):
    _job.command()(_command)
_groups = _group("group", "Jobs that were submitted together, with --seeds or --grid.")
for _command in (groups.show, groups.watch, groups.cancel):
    _groups.command()(_command)

app.command()(reproduce.reproduce)

_data = _group("data", "Tables on the server.")
_data.command()(data.upload)
_data.command("list")(data.listing)
_data.command()(data.show)
_data.command("rm")(data.remove)

_group("token", "Tokens for a server of yours.").command("new")(machine.new_token)
app.command()(machine.info)

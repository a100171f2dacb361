"""`khot submit`, `khot watch` and `khot status`: jobs from a shell."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from khot_client.cli.options import Address, Ca, Tls, Token, connect
from khot_client.cli.render import describe, show_progress
from khot_client.client import Client
from khot_client.connection import DEFAULT_ADDRESS
from khot_client.jobs import Job
from khot_client.values import FeatureSelection

JobId = Annotated[str, typer.Argument(help="As `khot submit` prints it.", show_default=False)]
DETACHED = 130  # as a shell says that Ctrl-C ended something


def feature_selection(
    k: Annotated[int, typer.Option("-k", help="How many features to choose.")] = 10,
    dataset: Annotated[str, typer.Option(help="A data set that the server has.")] = "digits",
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the data.", show_default="the server's choice"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Of initialisation, order and masks.", show_default="0"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--watch", help="Show progress, and the result at the end.")
    ] = False,
    address: Address = None,
    token: Token = None,
    tls: Tls = False,
    ca: Ca = None,
) -> None:
    """Learn which k features tell classes apart. Prints the id of the job.

    Example: khot submit feature-selection --dataset digits -k 10 --watch
    """
    with connect(address, token, tls, ca) as client:
        job = client.submit(FeatureSelection(dataset, k, epochs, seed))
        typer.echo(job.id)
        if follow:
            _watch(client, job)


def watch(
    job_id: JobId, address: Address = None, token: Token = None, tls: Tls = False, ca: Ca = None
) -> None:
    """Show a job's progress until it ends, then its result. Ctrl-C leaves the job running.

    Example: khot watch 6f0c1c2ab43e4d0f
    """
    with connect(address, token, tls, ca) as client:
        _watch(client, client.job(job_id))


def status(
    job_id: JobId, address: Address = None, token: Token = None, tls: Tls = False, ca: Ca = None
) -> None:
    """Show a job as it is now.

    Example: khot status 6f0c1c2ab43e4d0f
    """
    with connect(address, token, tls, ca) as client:
        job = client.job(job_id).status()
    console = Console()
    table = Table(show_header=False, box=None)
    table.add_row("job", job.id)
    table.add_row("what", repr(job.spec))
    table.add_row("state", job.state)
    table.add_row("attempts", str(job.attempts))
    table.add_row("submitted", f"{job.create_time:%Y-%m-%d %H:%M:%S} UTC")
    table.add_row("changed", f"{job.update_time:%Y-%m-%d %H:%M:%S} UTC")
    if job.failure:
        table.add_row("failure", f"{job.failure.kind}: {job.failure.message}")
    console.print(table)
    if job.result:
        console.print(describe(job.result))


def _watch(client: Client, job: Job) -> None:
    console = Console()
    try:
        show_progress(console, job.watch())
        result = job.wait()
    except KeyboardInterrupt:
        where = "" if client.address == DEFAULT_ADDRESS else f" --address {client.address}"
        typer.echo(f"\nThe job goes on. Watch it again with: khot watch {job.id}{where}", err=True)
        raise typer.Exit(DETACHED) from None
    console.print(describe(result))

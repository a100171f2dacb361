"""The rest of `khot job`: what a job has found, measured, printed and left."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from khot_client.cli import following
from khot_client.cli.jobs import JobId
from khot_client.cli.options import Session, spread
from khot_client.cli.output import print_json, print_table, size, terminal
from khot_client.errors import NotFound, RequestError
from khot_client.jobs import Job


@spread
def result(job_id: JobId, session: Session) -> None:
    """Show what a job has found, features, an equation or the use of units, and how well it does.

    Example: khot job result 6f0c1c2ab43e4d0f
    """
    with session.connect() as client:
        job = client.job(job_id)
        status = job.status()
        if not status.state.ended:
            come = session.again(f"job watch {job_id}")
            must = f"job {job_id}: must have ended; got {status.state}"
            raise RequestError(f"{must}. Wait for it with: {come}", code="FAILED_PRECONDITION")
        found = job.result()
    if session.as_json:
        print_json(found)
        return
    from khot_client.cli.render import describe

    console = terminal()
    console.print(describe(found), soft_wrap=not console.is_terminal)


@spread
def logs(
    job_id: JobId,
    session: Session,
    attempt: Annotated[int, typer.Option(help="Its number; 0: the latest.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the job ends.")] = False,
) -> None:
    """Show what an attempt at a job has printed.

    Example: khot job logs 6f0c1c2ab43e4d0f --follow
    """
    back = following.way_back(session, f"job logs {job_id} --follow") if follow else nullcontext()
    with session.connect() as client, back:
        for text in client.job(job_id).logs(attempt, follow=follow):
            if session.as_json:
                print_json({"text": text})
            else:
                typer.echo(text, nl=False)


@spread
def download(
    job_id: JobId,
    session: Session,
    name: Annotated[str | None, typer.Argument(help="One file alone.", show_default="all")] = None,
    to: Annotated[Path, typer.Option(help="A folder; for one file also its new name.")] = Path(),
    listing: Annotated[bool, typer.Option("--list", help="Only say what there is.")] = False,
) -> None:
    """Download the files of a job. Until a file is whole, its name ends in .part.

    Example: khot job download 6f0c1c2ab43e4d0f --to results
    """
    with session.connect() as client:
        job = client.job(job_id)
        if listing:
            _list(session, job)
            return
        from khot_client.cli.progress import Transfer

        with Transfer(terminal(), quiet=session.as_json) as bar:
            try:
                paths = job.download(to, name, progress=bar.told)
            except KeyboardInterrupt:
                message = "stopped by Ctrl-C. Run it again, and the download goes on where it was"
                raise KeyboardInterrupt(message) from None
    if session.as_json:
        print_json(paths)
        return
    for path in paths:
        typer.echo(path)


def _list(session: Session, job: Job) -> None:
    files = job.artifacts()
    if session.as_json:
        print_json(files)
    else:
        print_table(
            ("file", "size", "type"), [(f.name, size(f.size_bytes), f.media_type) for f in files]
        )


@spread
def plot(
    job_id: JobId,
    session: Session,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Of this measurement; may be repeated.", show_default="those of the job"),
    ] = None,
    height: Annotated[int, typer.Option(min=2, help="Lines of a chart.")] = 12,
    width: Annotated[
        int | None, typer.Option(min=20, help="Columns of a chart.", show_default="the terminal's")
    ] = None,
) -> None:
    """Draw the measurements of a job over its steps: losses in one chart, the others each alone.

    Example: khot job plot 6f0c1c2ab43e4d0f --metric loss --metric validation_loss
    """
    with session.connect() as client:
        found = client.job(job_id).metrics(*metric or ())
    if missing := [name for name in metric or () if name not in found]:
        raise NotFound(f"metric: must be one of the job's; got {missing[0]!r}", code="NOT_FOUND")
    if session.as_json:
        print_json(found)
        return
    from khot_client.cli.plots import chart

    console = terminal()
    across = width or min(console.width, 100)
    for names in _charts(found, bool(metric), coloured=console.is_terminal):
        console.print(chart({name: found[name] for name in names}, across, height), soft_wrap=True)


def _charts(found: dict[str, Any], chosen: bool, *, coloured: bool) -> list[list[str]]:
    """Which measurements share a chart."""
    # of the references only if they are asked for: they are other networks
    names = [name for name in found if chosen or "." not in name]
    if not coloured:  # curves could not be told apart
        return [[name] for name in names]
    losses = [name for name in names if name.endswith("loss")]
    return [group for group in (losses, *([name] for name in names if name not in losses)) if group]

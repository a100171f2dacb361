"""Watching a job or a group from a shell until it ends, or until Ctrl-C."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from khot_client.cli.options import Session
from khot_client.cli.output import plain, print_json, print_table, terminal
from khot_client.errors import JobFailed, Unavailable
from khot_client.job_values import GroupStatus, JobState, StateChanged
from khot_client.jobs import Group, Job
from khot_client.watching import AFTER_ALL


def begun(session: Session, made: str, *, watch: bool) -> None:
    """Tell the id of what was submitted."""
    if not session.as_json:
        typer.echo(made)
    elif not watch:
        print_json({"id": made})


def job(session: Session, handle: Job) -> None:
    """Show a job until it ends, then its result.

    Raises:
        JobFailed: it ended without one.
        KeyboardInterrupt: the user has left it; the message says how to come back.
    """
    with way_back(session, f"job watch {handle.id}"):
        if session.as_json:
            for event in handle.watch():
                kind = "state" if isinstance(event, StateChanged) else "progress"
                _line(kind, event)
            _line("result", handle.wait())
            return
        from khot_client.cli.progress import show_progress

        console = terminal()
        show_progress(console, handle.watch())
        result = handle.wait()
    from khot_client.cli.render import describe

    console.print(describe(result), soft_wrap=not console.is_terminal)


def group(session: Session, handle: Group) -> None:
    """Show a group until all its jobs have ended, then a table of what they reached.

    Raises:
        JobFailed: one of them ended without a result.
        KeyboardInterrupt: the user has left it; the message says how to come back.
    """
    from khot_client.cli.progress import counting

    with way_back(session, f"group watch {handle.id}"):
        status = handle.status()
        with counting(terminal(), len(status.jobs), quiet=session.as_json) as told:
            told(status)
            for one in handle.jobs():
                for _ in one.watch(AFTER_ALL):
                    pass
                now = handle.status()
                if now.states != status.states:
                    told(now)
                status = now
    show_group(session, status)
    failed = len(status.jobs) - status.states.get(JobState.SUCCEEDED, 0)
    if failed:
        come = session.again(f"jobs --group {handle.id}")
        raise JobFailed(f"group {handle.id}: {failed} jobs have no result. List them with: {come}")


def show_group(session: Session, status: GroupStatus) -> None:
    """A row for each combination of the grid, over its seeds."""
    if session.as_json:
        print_json(status)
        return
    names = sorted({name for row in status.rows for name in row.values})
    measured = sorted({name for row in status.rows for name in row.test})
    header = [*names, "jobs", "succeeded", *(f"test {name}" for name in measured), "agreement"]
    rows: list[list[object]] = []
    for row in status.rows:
        spreads = [row.test.get(name) for name in measured]
        cells = [f"{s.mean:.4g} ± {s.deviation:.2g}" if s else "" for s in spreads]
        values = [row.values.get(name) for name in names]
        rows.append([*values, row.jobs, row.succeeded, *cells, row.agreement])
    print_table(header, rows)


@contextmanager
def way_back(session: Session, command: str) -> Iterator[None]:
    """Say how to come back to what goes on without us, if Ctrl-C or a lost server ends it here."""
    come = f"Watch it again with: {session.again(command)}"
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"detached, and it goes on. {come}") from None
    except Unavailable as error:
        # of a server that was there: the job is kept by it
        message = f"{error.message}. What was submitted is kept. {come}"
        raise Unavailable(message, code=error.code) from None


def _line(event: str, value: Any) -> None:
    print_json({"event": event, **plain(value)})

"""`khot jobs` and `khot job`: jobs from a shell."""

from typing import Annotated

import typer

from khot_client.cli import following
from khot_client.cli.options import Session, nearest, pairs, spread
from khot_client.cli.output import (
    age,
    moment,
    print_facts,
    print_json,
    print_table,
    words,
)
from khot_client.cli.wishes import KINDS
from khot_client.job_values import JobState, JobStatus

JobId = Annotated[str, typer.Argument(help="As `khot submit` prints it.", show_default=False)]


@spread
def jobs(
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="Only in this state; may be repeated.",
            autocompletion=lambda: [state.lower() for state in JobState],
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="Only feature-selection, or vae.",
            autocompletion=lambda: [*KINDS],
        ),
    ] = "",
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Only with it; may be repeated.")
    ] = None,
    group: Annotated[str, typer.Option(help="Only of this group.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the latest.")] = 20,
) -> None:
    """List your jobs, the latest first.

    Example: khot jobs --state running --state queued --limit 5
    """
    labels = pairs("label", label)
    if kind and kind.replace("_", "-") not in KINDS:
        raise nearest("kind:", kind, KINDS)
    with session.connect() as client:
        found = list(
            client.jobs(
                states=state or (),
                kind=kind.replace("-", "_"),
                labels=labels,
                group=group,
                limit=limit,
            )
        )
    if session.as_json:
        print_json(found)
        return
    header = ("job", "kind", "state", "done", "age", "data set", "labels")
    print_table(header, [_row(job) for job in found])


def _row(job: JobStatus) -> tuple[object, ...]:
    kind, old = job.spec.kind.replace("_", "-"), age(job.create_time)
    return (
        job.id,
        kind,
        job.state.lower(),
        _done(job),
        old,
        job.spec.dataset,
        words(job.labels),
    )


def _done(job: JobStatus) -> str:
    if job.progress is None:
        return ""
    if job.state is JobState.SUCCEEDED:  # which may be before the last step
        return "100%"
    return f"{job.progress.step / max(1, job.progress.total_steps):.0%}"


@spread
def show(job_id: JobId, session: Session) -> None:
    """Show a job as it is now, with its attempts.

    Example: khot job show 6f0c1c2ab43e4d0f
    """
    with session.connect() as client:
        job = client.job(job_id)
        status, attempts = job.status(), job.attempts()
    if session.as_json:
        print_json({**vars(status), "attempts": attempts})
        return
    print_facts(
        {
            "job": status.id,
            "what": repr(status.spec),
            "state": status.state.lower(),
            "done": _done(status),
            "submitted": moment(status.create_time),
            "changed": moment(status.update_time),
            "labels": words(status.labels),
            "priority": status.priority or None,
            "may run": f"{status.max_run_s:g} s" if status.max_run_s else None,
            "group": status.group,
            "failure": status.failure and f"{status.failure.kind}: {status.failure.message}",
        }
        | {
            f"attempt {one.number}": f"{one.outcome.lower() or 'runs'}, steps {one.first_step} to "
            f"{one.last_step}, on {one.runner}{one.message and f': {one.message}'}"
            for one in attempts
        }
    )


@spread
def watch(job_id: JobId, session: Session) -> None:
    """Show a job's progress until it ends, then its result. Ctrl-C leaves the job running.

    Example: khot job watch 6f0c1c2ab43e4d0f
    """
    with session.connect() as client:
        following.job(session, client.job(job_id))


def _told(session: Session, status: JobStatus) -> None:
    if session.as_json:
        print_json(status)
    else:
        typer.echo(f"{status.id} {status.state.lower()}")


@spread
def cancel(job_id: JobId, session: Session) -> None:
    """Ask a job to end. It may succeed first; asking again changes nothing.

    Example: khot job cancel 6f0c1c2ab43e4d0f
    """
    with session.connect() as client:
        _told(session, client.job(job_id).cancel())


@spread
def pause(job_id: JobId, session: Session) -> None:
    """Stop a job at a checkpoint, until `khot job resume`.

    Example: khot job pause 6f0c1c2ab43e4d0f
    """
    with session.connect() as client:
        _told(session, client.job(job_id).pause())


@spread
def resume(job_id: JobId, session: Session) -> None:
    """Queue a paused job again.

    Example: khot job resume 6f0c1c2ab43e4d0f
    """
    with session.connect() as client:
        _told(session, client.job(job_id).resume())


@spread
def retry(job_id: JobId, session: Session) -> None:
    """Queue a failed or cancelled job again, from its last checkpoint.

    Example: khot job retry 6f0c1c2ab43e4d0f
    """
    with session.connect() as client:
        _told(session, client.job(job_id).retry())

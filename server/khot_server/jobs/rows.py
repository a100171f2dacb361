"""Rows of the tables to the records that the store hands out, and back."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from khot_server.jobs.records import AttemptRecord, Counted, Event, Job, Options, Progress
from khot_server.jobs.results import result_from_json
from khot_server.jobs.spec import spec_from_json
from khot_server.jobs.states import FailureKind, JobState


def to_job(row: Row[Any], labels: Mapping[str, str], *, with_result: bool = True) -> Job:
    """The job of a row of `jobs`; a list of many can do without results."""
    has_result = with_result and row.result is not None
    return Job(
        id=row.id,
        tenant=row.tenant,
        spec=spec_from_json(row.spec),
        options=Options(labels=labels, priority=row.priority, max_run_s=row.max_run_s),
        group_id=row.group_id,
        state=JobState(row.state),
        failure_kind=None if row.failure_kind is None else FailureKind(row.failure_kind),
        failure_message=row.failure_message,
        attempts=row.attempts,
        create_time=to_time(row.create_time),
        update_time=to_time(row.update_time),
        progress=None if row.progress is None else Progress(**json.loads(row.progress)),
        result=result_from_json(row.result) if has_result else None,
    )


def to_event(row: Row[Any]) -> Event:
    progress, details = None, json.loads(row.details)
    counted = details.pop("counted", {})
    counted["checkpoints_s"] = tuple(counted.get("checkpoints_s", ()))
    failure_kind, outcome = details.pop("failure_kind", None), details.pop("attempt_outcome", None)
    if row.kind == "progress":
        known = {"step": row.step, "total_steps": row.total_steps}
        progress = Progress(**known, metrics=json.loads(row.metrics), **details)
    counted["iterations"] = _numbered(json.loads(row.iterations))
    counted["residuals"] = _numbered(counted.get("residuals", {}))
    return Event(
        sequence=row.sequence,
        time=to_time(row.time),
        kind=row.kind,
        state=None if row.state is None else JobState(row.state),
        message=row.message,
        progress=progress,
        counted=Counted(**counted),
        failure_kind=None if failure_kind is None else FailureKind(failure_kind),
        attempt_outcome=outcome,
    )


def _numbered(counts: Mapping[str, int]) -> dict[int, int]:
    """Counts by numbers, which JSON has as texts."""
    return {int(number): rows for number, rows in counts.items()}


def to_attempt(row: Row[Any]) -> AttemptRecord:
    return AttemptRecord(
        number=row.number,
        runner=row.runner,
        outcome=row.outcome,
        message=row.message,
        start_time=to_time(row.start_time),
        end_time=None if row.end_time is None else to_time(row.end_time),
        first_step=row.first_step,
        last_step=row.last_step,
    )


def state_changed(state: JobState, message: str, **details: Any) -> dict[str, Any]:
    """The columns of an event of kind `state`; details are those of an `Event`."""
    empty = {"step": 0, "total_steps": 0, "metrics": "{}", "iterations": "{}"}
    known = {name: value for name, value in details.items() if value is not None}
    told = {"state": state, "message": message, "details": json.dumps(known)}
    return {"kind": "state", **told, **empty}


def progressed(progress: Progress, counted: Counted) -> dict[str, Any]:
    """The columns of an event of kind `progress`."""
    details, did = asdict(progress), asdict(counted)
    where = {name: details.pop(name) for name in ("step", "total_steps")}
    texts = {
        "metrics": json.dumps(details.pop("metrics")),
        "iterations": json.dumps(did.pop("iterations")),
        "details": json.dumps({**details, "counted": did}),
    }
    return {"kind": "progress", "state": None, "message": "", **where, **texts}


def to_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

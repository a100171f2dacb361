"""Rows of the tables to the records that the store hands out, and back."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from khot_server.jobs.records import Event, Job
from khot_server.jobs.spec import result_from_json, spec_from_json
from khot_server.jobs.states import FailureKind, JobState


def to_job(row: Row[Any]) -> Job:
    return Job(
        id=row.id,
        tenant=row.tenant,
        spec=spec_from_json(row.spec),
        state=JobState(row.state),
        failure_kind=None if row.failure_kind is None else FailureKind(row.failure_kind),
        failure_message=row.failure_message,
        attempts=row.attempts,
        create_time=_time(row.create_time),
        update_time=_time(row.update_time),
        result=None if row.result is None else result_from_json(row.result),
    )


def to_event(row: Row[Any]) -> Event:
    return Event(
        sequence=row.sequence,
        time=_time(row.time),
        kind=row.kind,
        state=None if row.state is None else JobState(row.state),
        message=row.message,
        step=row.step,
        total_steps=row.total_steps,
        metrics=json.loads(row.metrics),
        iterations={int(number): solves for number, solves in json.loads(row.iterations).items()},
    )


def state_changed(state: JobState, message: str) -> dict[str, Any]:
    """The columns of an event of kind `state`."""
    empty = {"step": 0, "total_steps": 0, "metrics": "{}", "iterations": "{}"}
    return {"kind": "state", "state": state, "message": message, **empty}


def progressed(
    step: int, total_steps: int, metrics: Mapping[str, float], iterations: Mapping[int, int]
) -> dict[str, Any]:
    """The columns of an event of kind `progress`."""
    counted = {"metrics": json.dumps(metrics), "iterations": json.dumps(iterations)}
    where = {"step": step, "total_steps": total_steps}
    return {"kind": "progress", "state": None, "message": "", **where, **counted}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

"""Jobs, events, attempts and groups of the store <-> the messages of job_service.proto."""

import json
from collections import Counter
from datetime import datetime

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from khot_proto.v1 import job_service_pb2 as pb
from khot_server.api.spec_messages import result_message, spec_message
from khot_server.errors import InvalidArgument
from khot_server.jobs import groups
from khot_server.jobs.records import AttemptRecord, Event, Group, Job, Options, Progress
from khot_server.jobs.states import JobState

MAX_LABELS, MAX_LABEL = 32, 63
MAX_PRIORITY = 100
STATES = {pb.JobState.Value(f"JOB_STATE_{state}"): state for state in JobState}


def options_from_message(message: pb.JobOptions) -> Options:
    """The options, checked.

    Raises:
        InvalidArgument: one is not as it must be.
    """
    labels = dict(message.labels)
    fits = all(1 <= len(k) <= MAX_LABEL and len(v) <= MAX_LABEL for k, v in labels.items())
    if len(labels) > MAX_LABELS or not fits:
        must = f"must be at most {MAX_LABELS}, keys of 1 to {MAX_LABEL} characters and values of"
        got = f"{len(labels)} labels" if fits else "a longer one, or an empty key"
        text = f"options.labels: {must} at most {MAX_LABEL}; got {got}"
        raise InvalidArgument("options.labels", text)
    if not -MAX_PRIORITY <= message.priority <= MAX_PRIORITY:
        must = f"must be in [{-MAX_PRIORITY}, {MAX_PRIORITY}]"
        got = f"options.priority: {must}; got {message.priority}"
        raise InvalidArgument("options.priority", got)
    max_run_s = None
    if message.HasField("max_run_time"):
        max_run_s = message.max_run_time.ToNanoseconds() / 1e9
        if max_run_s <= 0:
            text = f"options.max_run_time: must be positive; got {max_run_s:g} s"
            raise InvalidArgument("options.max_run_time", text)
    return Options(labels=labels, priority=message.priority, max_run_s=max_run_s)


def job_message(job: Job) -> pb.Job:
    """The job as a caller sees it."""
    message = pb.Job(
        id=job.id,
        spec=spec_message(job.spec),
        state=f"JOB_STATE_{job.state}",
        failure_message=job.failure_message,
        attempts=job.attempts,
        failure_kind=f"FAILURE_KIND_{job.failure_kind or 'UNSPECIFIED'}",
        options=_options_message(job.options),
        group_id=job.group_id or "",
        create_time=_timestamp(job.create_time),
        update_time=_timestamp(job.update_time),
    )
    if job.progress is not None:
        message.progress.CopyFrom(_progress_message(job.progress))
    if job.result is not None:
        message.result.CopyFrom(result_message(job.result))
    return message


def event_message(event: Event) -> pb.JobEvent:
    """The event as a watcher sees it."""
    message = pb.JobEvent(sequence=event.sequence, time=_timestamp(event.time))
    if event.progress is not None:
        message.progress.CopyFrom(_progress_message(event.progress))
    else:
        changed = pb.StateChanged(state=f"JOB_STATE_{event.state}", message=event.message)
        message.state_changed.CopyFrom(changed)
    return message


def attempt_message(attempt: AttemptRecord) -> pb.Attempt:
    """The attempt as a caller sees it."""
    return pb.Attempt(
        number=attempt.number,
        runner=attempt.runner,
        outcome=attempt.outcome or "",
        message=attempt.message,
        start_time=_timestamp(attempt.start_time),
        end_time=None if attempt.end_time is None else _timestamp(attempt.end_time),
        first_step=attempt.first_step,
        last_step=attempt.last_step,
    )


def group_message(group: Group) -> pb.JobGroup:
    """The group as a caller sees it: its jobs without results, and the table of those."""
    message = pb.JobGroup(
        id=group.id,
        states=Counter(job.state.value for job in group.jobs),
        rows=[_row_message(row) for row in groups.summarize(group)],
        create_time=_timestamp(group.create_time),
    )
    for job in group.jobs:
        listed = message.jobs.add()
        listed.CopyFrom(job_message(job))
        listed.ClearField("result")
    return message


def _row_message(row: groups.Row) -> pb.GroupRow:
    message = pb.GroupRow(
        values={name: json.dumps(value) for name, value in row.values.items()},
        jobs=row.jobs,
        succeeded=row.succeeded,
        agreement=row.agreement,
    )
    for name, spread in row.test.items():
        message.test[name].CopyFrom(
            pb.Spread(
                mean=spread.mean,
                deviation=spread.deviation,
                best=spread.best,
                best_job_id=spread.best_job_id,
            )
        )
    return message


def _options_message(options: Options) -> pb.JobOptions:
    message = pb.JobOptions(labels=options.labels, priority=options.priority)
    if options.max_run_s is not None:
        message.max_run_time.CopyFrom(_duration(options.max_run_s))
    return message


def _progress_message(progress: Progress) -> pb.Progress:
    return pb.Progress(
        step=progress.step,
        total_steps=progress.total_steps,
        metrics=progress.metrics,
        epoch=progress.epoch,
        stage=progress.stage,
        steps_per_s=progress.steps_per_s,
        remaining=_duration(progress.remaining_s),
    )


def _timestamp(time: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(time)
    return message


def _duration(seconds: float) -> Duration:
    message = Duration()
    message.FromNanoseconds(round(seconds * 1e9))
    return message

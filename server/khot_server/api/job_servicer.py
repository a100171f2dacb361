"""JobService: jobs into the store, wishes about them, and what became of them."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1.job_service_pb2_grpc import JobServiceServicer
from khot_server.api.event_tail import EventTail
from khot_server.api.guard import identity
from khot_server.api.job_messages import (
    STATES,
    attempt_message,
    event_message,
    group_message,
    job_message,
    options_from_message,
)
from khot_server.api.spec_messages import invalid_spec, spec_from_message
from khot_server.api.submitter import Submitter
from khot_server.datasets import fit
from khot_server.datasets.records import Dataset, DatasetNotFound
from khot_server.datasets.store import DatasetStore
from khot_server.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    QuotaExceeded,
    ServiceError,
    StoreUnavailable,
)
from khot_server.jobs import groups
from khot_server.jobs.database import DatabaseUnavailable
from khot_server.jobs.files import job_directory, log_name
from khot_server.jobs.records import (
    DatasetGone,
    Job,
    JobNotFound,
    Options,
    RequestIdReused,
    TooManyJobs,
)
from khot_server.jobs.spec import Spec, SpecError
from khot_server.jobs.states import ENDED, IllegalTransition, JobState
from khot_server.jobs.store import JobStore
from khot_server.jobs.submission import Submission
from khot_server.jobs.sweeper import remove_files

REQUEST_ID_LENGTH = 64
EVENTS_AT_ONCE = 100
PAGE, MAX_PAGE = 100, 1000
LOG_BYTES = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")


class JobService(JobServiceServicer):
    """The servicer; see the comments of job_service.proto for what is promised."""

    def __init__(
        self, store: JobStore, datasets: DatasetStore, tail: EventTail, state_dir: Path
    ) -> None:
        self._store, self._datasets, self._tail = store, datasets, tail
        self._state_dir = state_dir
        self._submitter = Submitter(store)

    # Submitting.

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Any) -> pb.SubmitJobResponse:
        spec, options = spec_from_message(request.spec), options_from_message(request.options)
        if not request.validate_only:
            _check_request_id(request.request_id)
        dataset_id = await self._fitting(spec)
        if request.validate_only:
            return pb.SubmitJobResponse(job=job_message(_would_be(spec, options)))
        asked = Submission(identity().tenant, request.request_id, spec, options, dataset_id)
        with _as_ours(request.request_id):
            job = await self._submitter.submit(asked)
        self._tail.ring_runner()
        return pb.SubmitJobResponse(job=job_message(job))

    async def SubmitGroup(
        self, request: pb.SubmitGroupRequest, context: Any
    ) -> pb.SubmitGroupResponse:
        spec, options = spec_from_message(request.spec), options_from_message(request.options)
        if not request.validate_only:
            _check_request_id(request.request_id)
        grid = {axis.field: list(axis.values) for axis in request.grid}
        if len(grid) < len(request.grid):
            raise InvalidArgument("grid", "grid: must have each field once; got one again")
        try:
            specs = groups.expand(spec, request.seeds, grid)
        except SpecError as error:
            raise InvalidArgument(error.field, str(error)) from None
        dataset_ids = [await self._fitting(each) for each in specs]
        if request.validate_only:
            jobs = [job_message(_would_be(each, options)) for each in specs]
            return pb.SubmitGroupResponse(group=pb.JobGroup(jobs=jobs))
        group = await self._call(
            self._store.submit_group,
            request.request_id,
            specs,
            options,
            axes=list(grid),
            dataset_ids=dataset_ids,
        )
        self._tail.ring_runner()
        return pb.SubmitGroupResponse(group=group_message(group))

    async def _fitting(self, spec: Spec) -> str | None:
        """The id of the spec's data set, if it was uploaded; refuse a spec that it does not fit."""

        def resolve(tenant: str, name: str) -> Dataset:
            dataset = self._datasets.resolve(tenant, name)
            fit.check(spec, dataset.summary)  # of a hundred thousand columns, perhaps
            return dataset

        try:
            return (await self._call(resolve, spec.dataset)).row_id
        except SpecError as error:
            raise invalid_spec(error) from None

    # Reading.

    async def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.GetJobResponse:
        return pb.GetJobResponse(job=await self._about(self._store.get, request.job_id))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:
        size, token = request.page_size, request.page_token
        if not 0 <= size <= MAX_PAGE:
            raise InvalidArgument("page_size", f"page_size: must be in [0, {MAX_PAGE}]; got {size}")
        if token and not token.isdecimal():
            must = "must be one of the page before"
            raise InvalidArgument("page_token", f"page_token: {must}; got {token[:40]!r}")
        if unknown := [state for state in request.states if state not in STATES]:
            raise InvalidArgument("states", f"states: must be of JobState; got {unknown[0]}")
        found, before = await self._call(
            self._store.page,
            states=[STATES[state] for state in request.states],
            kind=request.kind,
            with_labels=dict(request.labels),
            group_id=request.group_id,
            before=int(token) if token else None,
            limit=size or PAGE,
        )
        jobs = await asyncio.to_thread(lambda: [job_message(job) for job in found])
        next_token = "" if before is None else str(before)
        return pb.ListJobsResponse(jobs=jobs, next_page_token=next_token)

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: Any
    ) -> AsyncIterator[pb.WatchJobResponse]:
        after = request.after_sequence
        _check_not_negative("after_sequence", after)
        with self._tail.watch(request.job_id) as changed:
            while True:
                changed.clear()  # before reading, so that nothing between is missed
                # The job first: if it has ended by then, the events read after are all.
                job = await self._call(self._store.get, request.job_id)
                events = await self._call(self._store.events, request.job_id, after, EVENTS_AT_ONCE)
                for event in events:
                    after = event.sequence
                    yield pb.WatchJobResponse(event=event_message(event))
                if len(events) == EVENTS_AT_ONCE:
                    continue
                if job.state in ENDED:
                    return
                await self._tail.wait(changed)

    async def ListAttempts(
        self, request: pb.ListAttemptsRequest, context: Any
    ) -> pb.ListAttemptsResponse:
        found = await self._call(self._store.attempts, request.job_id)
        return pb.ListAttemptsResponse(attempts=[attempt_message(attempt) for attempt in found])

    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: Any
    ) -> pb.GetMetricsResponse:
        _check_not_negative("after_step", request.after_step)
        found = await self._call(
            self._store.series, request.job_id, list(request.names), request.after_step
        )
        response = pb.GetMetricsResponse()
        for name, pairs in found.items():
            steps, values = zip(*pairs, strict=True)
            known = [math.nan if value is None else value for value in values]
            response.series.add(name=name, steps=steps, values=known)
        return response

    async def GetLogs(self, request: pb.GetLogsRequest, context: Any) -> pb.GetLogsResponse:
        _check_not_negative("offset", request.offset)
        job = await self._call(self._store.get, request.job_id)
        number = request.attempt or job.attempts
        if not 0 <= number <= job.attempts:
            must = f"must be in [0, {job.attempts}], the number of attempts"
            raise InvalidArgument("attempt", f"attempt: {must}; got {request.attempt}")
        path = job_directory(self._state_dir, job.id) / log_name(number)
        text, offset = await asyncio.to_thread(_read_text, path, request.offset)
        return pb.GetLogsResponse(attempt=number, text=text, next_offset=offset)

    async def GetGroup(self, request: pb.GetGroupRequest, context: Any) -> pb.GetGroupResponse:
        group = await self._call(self._store.group, request.group_id)
        return pb.GetGroupResponse(group=group_message(group))

    # Asking for a change. The runner is rung, so that it looks at once.

    async def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.CancelJobResponse:
        return pb.CancelJobResponse(job=await self._about(self._store.cancel, request.job_id))

    async def PauseJob(self, request: pb.PauseJobRequest, context: Any) -> pb.PauseJobResponse:
        return pb.PauseJobResponse(job=await self._about(self._store.pause, request.job_id))

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: Any) -> pb.ResumeJobResponse:
        return pb.ResumeJobResponse(job=await self._about(self._store.resume, request.job_id))

    async def RetryJob(self, request: pb.RetryJobRequest, context: Any) -> pb.RetryJobResponse:
        return pb.RetryJobResponse(job=await self._about(self._store.retry, request.job_id))

    async def DeleteJob(self, request: pb.DeleteJobRequest, context: Any) -> pb.DeleteJobResponse:
        await self._call(self._store.delete, request.job_id)
        await asyncio.to_thread(remove_files, self._state_dir, request.job_id)
        self._tail.ring()
        return pb.DeleteJobResponse()

    async def CancelGroup(
        self, request: pb.CancelGroupRequest, context: Any
    ) -> pb.CancelGroupResponse:
        group = await self._call(self._store.group, request.group_id)
        for job in group.jobs:
            if job.state not in ENDED:
                try:
                    await self._about(self._store.cancel, job.id)
                except (FailedPrecondition, NotFound):
                    continue  # it has ended meanwhile
        group = await self._call(self._store.group, request.group_id)
        return pb.CancelGroupResponse(group=group_message(group))

    async def _about(self, method: Callable[[str, str], Job], job_id: str) -> pb.Job:
        job = await self._call(method, job_id)
        self._tail.ring_runner()
        self._tail.ring()
        return job_message(job)

    async def _call(
        self, method: Callable[Concatenate[str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the store's method returns for the tenant that calls, or its error as ours."""
        with _as_ours(str(args[0]) if args else ""):
            return await asyncio.to_thread(method, identity().tenant, *args, **kwargs)


@contextmanager
def _as_ours(name: str) -> Iterator[None]:
    """Raise the store's errors as ours; about what has this name."""
    try:
        yield
    except (*_NAMED, RequestIdReused, TooManyJobs, DatabaseUnavailable) as error:
        raise _service_error(error, name) from None


_NAMED = (JobNotFound, DatasetNotFound, DatasetGone, IllegalTransition)


def _service_error(error: Exception, name: str) -> ServiceError:
    match error:
        case JobNotFound():
            return NotFound("job", name, str(error))
        case DatasetNotFound() | DatasetGone():
            return NotFound("dataset", name, str(error))
        case IllegalTransition():
            return FailedPrecondition(f"jobs/{name}", str(error))
        case RequestIdReused():
            return AlreadyExists("job", name, str(error))
        case TooManyJobs():
            return QuotaExceeded(str(error))
        case _:
            return StoreUnavailable(str(error))


def _would_be(spec: Spec, options: Options) -> Job:
    """The job that was only validated."""
    now = datetime.now(UTC)
    return Job("", "", spec, options, None, JobState.QUEUED, None, "", 0, now, now, None, None)


def _check_request_id(request_id: str) -> None:
    length = len(request_id)
    if not 1 <= length <= REQUEST_ID_LENGTH:
        must = f"must have 1 to {REQUEST_ID_LENGTH} characters"
        raise InvalidArgument("request_id", f"request_id: {must}; got {length}")


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise InvalidArgument(name, f"{name}: must not be negative; got {value}")


def _read_text(path: Path, offset: int) -> tuple[str, int]:
    """At most LOG_BYTES of whole characters from `offset` on, and where they end."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(LOG_BYTES)
    except FileNotFoundError:
        return "", offset
    text = data.decode(errors="ignore" if len(data) == LOG_BYTES else "replace")
    used = len(text.encode()) if len(data) == LOG_BYTES else len(data)
    return text, offset + used

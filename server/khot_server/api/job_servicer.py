"""JobService: jobs into the store, events out of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from khot_proto.v1 import job_service_pb2 as pb
from khot_proto.v1.job_service_pb2_grpc import JobServiceServicer
from khot_server.api.event_tail import EventTail
from khot_server.api.guard import identity
from khot_server.api.job_messages import event_message, job_message, spec_from_message
from khot_server.errors import AlreadyExists, InvalidArgument, NotFound, QuotaExceeded
from khot_server.jobs.states import TERMINAL
from khot_server.jobs.store import JobNotFound, JobStore, RequestIdReused, TooManyJobs

REQUEST_ID_LENGTH = 64
EVENTS_AT_ONCE = 100


class JobService(JobServiceServicer):
    """The servicer; see the comments of job_service.proto for what is promised."""

    def __init__(self, store: JobStore, tail: EventTail) -> None:
        self._store, self._tail = store, tail

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Any) -> pb.SubmitJobResponse:
        length = len(request.request_id)
        if not 1 <= length <= REQUEST_ID_LENGTH:
            raise InvalidArgument(
                "request_id",
                f"request_id: must have 1 to {REQUEST_ID_LENGTH} characters; got {length}",
            )
        spec = spec_from_message(request.spec)
        tenant = identity().tenant
        try:
            job = await asyncio.to_thread(self._store.submit, tenant, request.request_id, spec)
        except RequestIdReused as error:
            raise AlreadyExists("job", request.request_id, str(error)) from None
        except TooManyJobs as error:
            raise QuotaExceeded(str(error)) from None
        self._tail.ring_runner()
        return pb.SubmitJobResponse(job=job_message(job))

    async def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.GetJobResponse:
        try:
            job = await asyncio.to_thread(self._store.get, identity().tenant, request.job_id)
        except JobNotFound as error:
            raise NotFound("job", request.job_id, str(error)) from None
        return pb.GetJobResponse(job=job_message(job))

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: Any
    ) -> AsyncIterator[pb.WatchJobResponse]:
        tenant, after = identity().tenant, request.after_sequence
        if after < 0:
            raise InvalidArgument(
                "after_sequence", f"after_sequence: must not be negative; got {after}"
            )
        with self._tail.watch(request.job_id) as changed:
            while True:
                changed.clear()  # before reading, so that nothing between is missed
                try:
                    # The job first: if it has ended by then, the events read after are all.
                    job = await asyncio.to_thread(self._store.get, tenant, request.job_id)
                    events = await asyncio.to_thread(
                        self._store.events, tenant, request.job_id, after, EVENTS_AT_ONCE
                    )
                except JobNotFound as error:
                    raise NotFound("job", request.job_id, str(error)) from None
                for event in events:
                    after = event.sequence
                    yield pb.WatchJobResponse(event=event_message(event))
                if len(events) == EVENTS_AT_ONCE:
                    continue
                if job.state in TERMINAL:
                    return
                await self._tail.wait(changed)

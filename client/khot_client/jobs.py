"""The handles of a job and of a group of jobs, for blocking programs."""

import os
from collections.abc import Iterator
from pathlib import Path

from khot_client import downloads, job_calls, watching
from khot_client.connection import Connection
from khot_client.io import iterate, run
from khot_client.job_values import Artifact, Attempt, Event, GroupStatus, JobStatus, Series
from khot_client.specs import Result

RECONNECT_S = 60.0


class Job:
    """A job on the server, by its id. Made by `Client.submit` and `Client.job`."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection = connection
        self.id = job_id

    def status(self) -> JobStatus:
        """Return the job as it is now."""
        return self._connection.call(job_calls.get(self.id))

    def watch(
        self, after_sequence: int = 0, *, reconnect_s: float = RECONNECT_S
    ) -> Iterator[Event]:
        """Yield what happens to the job, from the beginning, until it has ended.

        Args:
            after_sequence: only events with a greater number: 0 for all.
            reconnect_s: how long to wait for a server that is lost.

        Raises:
            Unavailable: no server answered for `reconnect_s`. The job goes on; watch it
                again from the last number seen.
            KhotError: the call failed.
        """
        blocking = self._connection.blocking
        return iterate(watching.events(blocking, self.id, after_sequence, reconnect_s))

    def wait(self, timeout_s: float | None = None, *, reconnect_s: float = RECONNECT_S) -> Result:
        """Return the result, once it is there.

        Args:
            timeout_s: how long to wait; None: as long as it takes.
            reconnect_s: as in `watch`.

        Raises:
            JobFailed: the job failed or was cancelled.
            DeadlineExceeded: it had not ended in time. It goes on; wait again.
            KhotError: the call failed.
        """
        return run(watching.result(self._connection.blocking, self.id, timeout_s, reconnect_s))

    def result(self) -> Result:
        """Return the result of a job that has ended, without waiting.

        Raises:
            JobFailed: the job failed or was cancelled.
            RequestError: it has not ended.
        """
        return watching.result_of(self.id, self.status())

    def cancel(self) -> JobStatus:
        """Ask the job to end; it may succeed first. Asking again changes nothing.

        Raises:
            RequestError: it has ended otherwise.
        """
        return self._connection.call(job_calls.cancel(self.id))

    def pause(self) -> JobStatus:
        """Stop the job at a checkpoint, until `resume`. Asking again changes nothing.

        Raises:
            RequestError: its state does not allow it.
        """
        return self._connection.call(job_calls.pause(self.id))

    def resume(self) -> JobStatus:
        """Queue a paused job again. Asking again changes nothing.

        Raises:
            RequestError: its state does not allow it.
        """
        return self._connection.call(job_calls.resume(self.id))

    def retry(self) -> JobStatus:
        """Queue a failed or cancelled job again, from its last checkpoint.

        Raises:
            RequestError: its state does not allow it.
        """
        return self._connection.call(job_calls.retry(self.id))

    def delete(self) -> None:
        """Remove a job that has ended, with all its files.

        Raises:
            RequestError: it has not ended.
        """
        return self._connection.call(job_calls.delete(self.id))

    def attempts(self) -> list[Attempt]:
        """Return the attempts at the job, the first one first."""
        return self._connection.call(job_calls.attempts(self.id))

    def metrics(self, *names: str, after_step: int = 0) -> dict[str, Series]:
        """Return the measurements of the job over its steps, by name.

        Args:
            names: only these, such as `loss`; none: all.
            after_step: only greater steps.
        """
        return self._connection.call(job_calls.metrics(self.id, names, after_step))

    def logs(
        self, attempt: int = 0, *, follow: bool = False, reconnect_s: float = RECONNECT_S
    ) -> Iterator[str]:
        """Yield what an attempt has printed, piece by piece.

        Args:
            attempt: its number; 0: the latest.
            follow: go on until the job has ended, over later attempts too if `attempt` is 0.
            reconnect_s: as in `watch`, for one that follows.
        """
        blocking = self._connection.blocking
        return iterate(watching.logs(blocking, self.id, attempt, follow, reconnect_s))

    def artifacts(self) -> list[Artifact]:
        """Return what files the job left; none before it has ended."""
        return self._connection.call(job_calls.artifacts(self.id))

    def download(
        self,
        to: str | os.PathLike[str] = ".",
        name: str | None = None,
        *,
        progress: downloads.Told | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> list[Path]:
        """Download the files of the job, and return their paths.

        What looks complete is complete: until its checksum is right, a file has a name
        that ends in `.part`, and a later call goes on with it. What is there already is left.

        Args:
            to: a folder, made if it is not there; for one file also its new name.
            name: only this one of `artifacts()`.
            progress: called with name, bytes done and bytes in all.
            reconnect_s: how long to wait for a server that is lost.

        Raises:
            TransferFailed: a file cannot be written, or came damaged twice.
            NotFound: the job has no such file.
            KhotError: the call failed.
        """
        blocking = self._connection.blocking
        return run(downloads.download(blocking, self.id, to, name, progress, reconnect_s))

    def __repr__(self) -> str:
        return f"Job({self.id!r})"


class Group:
    """Jobs that were submitted together. Made by `Client.submit_group` and `Client.group`."""

    def __init__(self, connection: Connection, group_id: str) -> None:
        self._connection = connection
        self.id = group_id

    def status(self) -> GroupStatus:
        """Return the group as it is now, with a table of its results."""
        return self._connection.call(job_calls.get_group(self.id))

    def wait(
        self, timeout_s: float | None = None, *, reconnect_s: float = RECONNECT_S
    ) -> GroupStatus:
        """Return the group, once all its jobs have ended, whether well or not.

        Args:
            timeout_s: how long to wait; None: as long as it takes.
            reconnect_s: how long to wait for a server that is lost.

        Raises:
            DeadlineExceeded: some had not ended in time. They go on; wait again.
            KhotError: the call failed.
        """
        return run(watching.group_end(self._connection.blocking, self.id, timeout_s, reconnect_s))

    def cancel(self) -> GroupStatus:
        """Ask all its jobs to end that have not."""
        return self._connection.call(job_calls.cancel_group(self.id))

    def jobs(self) -> list[Job]:
        """Return the handles of its jobs, in the order of the grid, seeds last."""
        return [Job(self._connection, job.id) for job in self.status().jobs]

    def __repr__(self) -> str:
        return f"Group({self.id!r})"

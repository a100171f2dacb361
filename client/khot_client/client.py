"""The client: calls of the service as plain functions of arrays and frozen data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

from numpy.typing import ArrayLike

from khot_client import data_calls, job_calls, uploads, watching
from khot_client.connection import Connection
from khot_client.data_values import Dataset
from khot_client.io import iterate, run
from khot_client.job_calls import Wishes
from khot_client.job_values import JobStatus
from khot_client.jobs import RECONNECT_S, Group, Job
from khot_client.serving import Serving
from khot_client.settings import PathLike, resolve
from khot_client.specs import Spec

TIMEOUT_S = 30.0


class Client(Serving):
    """A connection to a khot service. May be shared by threads; use it in a `with`, or close it.

    Args:
        address: host:port; default `$KHOT_ADDRESS`, the profile's, then 127.0.0.1:50551.
        token: sent with every call; default `$KHOT_TOKEN`, the profile's, then none.
        tls: False for plain text, True for the system's authorities, or the path of a PEM
            file with others; default `$KHOT_TLS`, the profile's, then False. A token goes over
            plain text only within this machine.
        cert: path of a PEM file: the certificate of this client, if the server asks for one.
        key: path of a PEM file: the key of the certificate.
        profile: which one of the file to use; default `$KHOT_PROFILE`, then the file's own.
            `khot_client/settings.py` shows the file.
        timeout_s: how long a call may take, retries included; None for no limit. Each call
            has a `timeout_s` of its own: None for this one, math.inf for none.
        coalesce: whether calls that threads make at the same time share a request. What was
            asked while the last request was under way makes the next one; nobody waits for a
            timer, and a bad item fails alone.

    Raises:
        BadSettings: an argument cannot be used. No call is made here: a server that is
            not there is told by the first call.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        tls: bool | PathLike | None = None,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        profile: str | None = None,
        timeout_s: float | None = TIMEOUT_S,
        coalesce: bool = False,
    ) -> None:
        settings = resolve(address, token=token, tls=tls, cert=cert, key=key, profile=profile)
        super().__init__(Connection(settings, timeout_s), coalesce=coalesce)

    @property
    def address(self) -> str:
        """Where the service is."""
        return self._connection.address

    def submit(
        self,
        spec: Spec,
        *,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        max_run_s: float | None = None,
    ) -> Job:
        """Store a job on the server and return its handle; it runs whatever happens here.

        Args:
            spec: what to do.
            request_id: at most 64 characters; the same one returns the same job and
                stores nothing. None: a new one.
            labels: any words about it, to find it by.
            priority: among your jobs, those with a greater number go first; in [-100, 100].
            max_run_s: how long its attempts may run in all; None: as long as it takes.
        """
        wishes = Wishes(labels or {}, priority, max_run_s)
        status = self._connection.call(job_calls.submit(spec, wishes, request_id))
        return Job(self._connection, status.id)

    def validate(
        self,
        spec: Spec,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        max_run_s: float | None = None,
    ) -> JobStatus:
        """Return the job that `submit` would store, without an id; store nothing.

        Raises:
            KhotError: `submit` would be refused.
        """
        wishes = Wishes(labels or {}, priority, max_run_s)
        return self._connection.call(job_calls.submit(spec, wishes, None, validate_only=True))

    def submit_group(
        self,
        spec: Spec,
        *,
        seeds: Iterable[int] = (),
        grid: Mapping[str, Sequence[Any]] | None = None,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        max_run_s: float | None = None,
    ) -> Group:
        """Store several jobs, all or none, and return their handle.

        Args:
            spec: what they have in common.
            seeds: a job for each, in place of the spec's own.
            grid: values to try by field of the spec, such as {"k": [5, 10]}: a job for each
                combination, with every seed.
            request_id: as in `submit`, of the group.
            labels: as in `submit`, of all its jobs.
            priority: the same.
            max_run_s: the same, of each.
        """
        wishes = Wishes(labels or {}, priority, max_run_s)
        call = job_calls.submit_group(spec, seeds, grid or {}, wishes, request_id)
        return Group(self._connection, self._connection.call(call).id)

    def jobs(
        self,
        *,
        states: Iterable[str] = (),
        kind: str = "",
        labels: Mapping[str, str] | None = None,
        group: str = "",
        limit: int | None = None,
    ) -> Iterator[JobStatus]:
        """Yield your jobs, the latest first, without their results.

        Args:
            states: only in one of these; none: in any.
            kind: only of this one, such as `feature_selection`.
            labels: only with all of these; an empty value stands for any.
            group: only of the group with this id.
            limit: at most so many; None: all.
        """
        page = partial(job_calls.page, tuple(states), kind, labels or {}, group)
        return iterate(watching.pages(self._connection.blocking, page, limit, job_calls.PAGE))

    def job(self, job_id: str) -> Job:
        """Return the handle of a job by its id, without asking the server."""
        return Job(self._connection, job_id)

    def group(self, group_id: str) -> Group:
        """Return the handle of a group by its id, without asking the server."""
        return Group(self._connection, group_id)

    def upload(
        self,
        data: Any,
        target: ArrayLike | None = None,
        *,
        columns: Sequence[str] | None = None,
        name: str | None = None,
        format: str | None = None,  # noqa: A002
        upload_id: str | None = None,
        progress: uploads.Told | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> Dataset:
        """Send a table to the server, for any number of jobs.

        An upload that broke off goes on where it was, also from another process: the same
        data under the same name is the same upload, and sent twice it is one data set.

        Args:
            data: an array (rows, columns), or (rows, height, width) of pictures; a DataFrame of
                pandas or polars; or the path of a .npz, .csv or .parquet file.
            target: what is to be predicted, (rows,), if the data is an array.
            columns: their names, if the data is an array.
            name: what people call it; default the file's name, or `data`.
            format: npz, csv or parquet; default by the file's name, or what fits best.
            upload_id: at most 64 characters; default made of the contents and the name.
            progress: called with bytes done and bytes in all, perhaps from another thread.
            reconnect_s: how long to wait for a server that is lost.

        Raises:
            InvalidRequest: it is no table that can be used.
            TransferFailed: the file cannot be read.
            KhotError: the call failed.
        """
        how = {"target": target, "columns": columns, "name": name, "format": format}
        blocking = self._connection.blocking
        return run(
            uploads.upload(blocking, data, progress, reconnect_s, upload_id=upload_id, **how)
        )

    def datasets(self, *, limit: int | None = None) -> Iterator[Dataset]:
        """Yield your data sets, the latest first, then those that the server brings."""
        blocking = self._connection.blocking
        return iterate(watching.pages(blocking, data_calls.page, limit, data_calls.PAGE))

    def dataset(self, dataset_id: str) -> Dataset:
        """Return a data set, with its columns."""
        return self._connection.call(data_calls.get(dataset_id))

    def delete_dataset(self, dataset_id: str) -> None:
        """Remove a data set.

        Raises:
            RequestError: a job that has not ended uses it.
        """
        return self._connection.call(data_calls.delete(dataset_id))

    def close(self) -> None:
        """End the connection, and with it the calls under way. Jobs go on."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

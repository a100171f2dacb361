"""Every metric of the service: its name, its labels and what it tells. The page has this table.

Labels are closed sets, so that the number of series has a bound: the methods of the services,
status codes, names of the registry, states, kinds. The one exception is `job_id`, of which
there are as many as jobs run at this moment.
"""

from dataclasses import dataclass
from typing import Literal

_SHORT = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600)
_BYTES = tuple(float(8**power) for power in range(2, 10))  # 64 B to 128 MiB
_ROWS = tuple(float(4**power) for power in range(10))
_SCORES = tuple(float(4**power) for power in range(2, 14))
_ITERATIONS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
_RESIDUALS = tuple(10.0**power for power in range(-16, 1))

DEVICES = ("cpu", "cuda", "mps")
SOURCES = ("serving", "training")
OPERATIONS = ("read", "write")
PROCESSES = ("supervisor", "api", "engine", "runner", "nursery", "attempt")
ATTEMPT_OUTCOMES = ("succeeded", "failed", "stopped", "lost")


@dataclass(frozen=True)
class Definition:
    """One metric.

    Attributes:
        bounds: of a histogram's buckets, ascending; there is one more, without a bound.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str
    bounds: tuple[float, ...] = ()


def _counter(name: str, labels: str, text: str) -> Definition:
    return Definition(name, "counter", tuple(labels.split()), text)


def _gauge(name: str, labels: str, text: str) -> Definition:
    return Definition(name, "gauge", tuple(labels.split()), text)


def _histogram(name: str, labels: str, bounds: tuple[float, ...], text: str) -> Definition:
    return Definition(name, "histogram", tuple(labels.split()), text, bounds)


DEFINITIONS = (
    # calls
    _counter("khot_requests_total", "method code", "Calls answered."),
    _histogram(
        "khot_request_duration_seconds", "method", _SHORT, "From a call's arrival to its end."
    ),
    _gauge("khot_requests_in_flight", "method", "Calls under way."),
    _histogram(
        "khot_request_message_bytes", "method", _BYTES, "Size of each message that was received."
    ),
    _histogram(
        "khot_response_message_bytes", "method", _BYTES, "Size of each message that was sent."
    ),
    # the queue and the batches
    _gauge("khot_queue_items", "", "Items, or chunks of them, waiting for an engine."),
    _gauge("khot_queue_scores", "", "Scores that wait for an engine, or that one has."),
    _gauge("khot_queue_limit_scores", "", "Scores that may wait or be computed at once."),
    _histogram("khot_queue_wait_seconds", "", _SHORT, "From an item's arrival to its batch."),
    _histogram("khot_batch_rows", "", _ROWS, "Rows in a batch."),
    _histogram("khot_batch_scores", "", _SCORES, "Scores in a batch, of all samples."),
    _histogram("khot_batch_compute_seconds", "", _SHORT, "The engine's time for a batch."),
    _counter("khot_rows_total", "operator", "Rows served."),
    _counter(
        "khot_draws_total", "design", "Draws in serving; those of an estimator by its law's design."
    ),
    # roots
    _histogram(
        "khot_root_iterations", "operator source", _ITERATIONS, "Root-finding iterations of a row."
    ),
    _histogram(
        "khot_root_residual", "operator source", _RESIDUALS, "Relative residual of a row's root."
    ),
    _counter("khot_root_fallback_rows_total", "operator source", "Rows that needed bisection."),
    _counter(
        "khot_root_nonconverged_rows_total",
        "operator source",
        "Rows whose residual is above the solver's tolerance.",
    ),
    # engines
    _gauge("khot_engine_up", "", "Engines that are there."),
    _counter("khot_engine_losses_total", "", "Engines that died."),
    _gauge("khot_engine_info", "device", "1 where an engine runs on the device, else 0."),
    # jobs
    _gauge("khot_jobs", "state kind", "Jobs now."),
    _counter("khot_jobs_submitted_total", "kind", "Jobs submitted."),
    _counter(
        "khot_jobs_ended_total", "kind outcome", "Jobs that succeeded, failed, were cancelled."
    ),
    _histogram("khot_job_duration_seconds", "kind", _LONG, "From a job's submission to its end."),
    _counter("khot_job_epochs_total", "kind", "Epochs trained."),
    _counter("khot_job_rows_total", "kind", "Examples trained on, each time they were."),
    _histogram("khot_checkpoint_seconds", "", _SHORT, "Time to write a checkpoint."),
    _counter(
        "khot_attempts_total",
        "outcome",
        "Attempts at jobs that ended; one that was lost, with its lease, is tried again.",
    ),
    _gauge("khot_job_loss", "job_id kind", "Training loss of a running job."),
    _gauge("khot_job_progress_ratio", "job_id kind", "Steps done of a running job, of all."),
    _gauge(
        "khot_job_last_progress_timestamp_seconds",
        "job_id kind",
        "When a running job last told of its progress; before it does, when it was first seen.",
    ),
    _counter("khot_nan_losses_total", "kind", "Jobs whose loss was not finite."),
    # storage
    _histogram(
        "khot_store_seconds",
        "operation",
        _SHORT,
        "A transaction of the API process on the job store, with its wait for the lock.",
    ),
    _counter("khot_upload_bytes_total", "", "Bytes of messages with uploads that were received."),
    _counter("khot_artifact_bytes_total", "", "Bytes of messages with artifacts that were sent."),
    _gauge("khot_state_free_bytes", "", "Free on the file system of the state directory."),
    _gauge("khot_state_size_bytes", "", "Size of the file system of the state directory."),
    # what runs, and where
    _gauge("khot_build_info", "version python grpc", "1; the versions are its labels."),
    _gauge(
        "khot_certificate_expiry_timestamp_seconds",
        "",
        "When the server's TLS certificate ends; absent without TLS.",
    ),
    _counter(
        "khot_process_cpu_seconds_total",
        "process",
        "Processor time of the service's processes.",
    ),
    _gauge(
        "khot_process_resident_memory_bytes",
        "process",
        "Memory of the service's processes; pages that several share are counted in each.",
    ),
    _gauge(
        "khot_machine_memory_bytes",
        "",
        "Memory of the machine, or of the container where that may have less.",
    ),
    _gauge(
        "khot_machine_memory_available_bytes", "", "Memory of it that can be had without swapping."
    ),
    _gauge("khot_gpu_memory_used_bytes", "device", "Memory in use of a GPU; absent without one."),
    _gauge(
        "khot_gpu_utilization_ratio",
        "device",
        "Share of the time in which a GPU computed; absent without one.",
    ),
)

BY_NAME = {definition.name: definition for definition in DEFINITIONS}

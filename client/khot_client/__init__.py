"""The Python client of the khot service. Imports neither torch nor khot."""

from importlib.metadata import version as _version

from khot_client.client import Client
from khot_client.errors import (
    AlreadyExists,
    BadSettings,
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    JobFailed,
    KhotError,
    NotFound,
    Overloaded,
    PermissionDenied,
    RequestError,
    ServerError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from khot_client.jobs import Job
from khot_client.values import (
    Event,
    Failure,
    FailureKind,
    FeatureSelection,
    FeatureSelectionResult,
    JobState,
    JobStatus,
    Operator,
    Progress,
    Relaxed,
    RelaxItem,
    Sample,
    SampleItem,
    StateChanged,
)

__version__ = _version("khot")

__all__ = [
    "AlreadyExists",
    "BadSettings",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "Event",
    "Failure",
    "FailureKind",
    "FeatureSelection",
    "FeatureSelectionResult",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "JobState",
    "JobStatus",
    "KhotError",
    "NotFound",
    "Operator",
    "Overloaded",
    "PermissionDenied",
    "Progress",
    "RelaxItem",
    "Relaxed",
    "RequestError",
    "Sample",
    "SampleItem",
    "ServerError",
    "StateChanged",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "__version__",
]

"""The kinds of job, each a task: from a specification to a call of `khot.training`.

Preparing a task reads the specification and the data, and a ValueError there says that they
do not fit each other, which is the user's to mend. `carry_out` drives it for an attempt.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from khot.training import Callbacks, Checkpoint
from khot_server.jobs.artifacts import Made
from khot_server.jobs.artifacts.history import History
from khot_server.jobs.messages import Order
from khot_server.jobs.spec import FeatureSelectionSpec, SparseRegressionSpec, VaeSpec
from khot_server.jobs.tasks import feature_selection, sparse_regression, vae
from khot_server.jobs.tasks.reporter import Course


class Task(Protocol):
    """A training that is prepared."""

    @property
    def course(self) -> Course:
        """What it goes through."""

    def train(self, resume: Checkpoint | None, callbacks: Callbacks) -> bool:
        """Train, from a checkpoint if there is one; False: stopped, after writing one."""

    def made(self, history: History) -> Made:
        """What came of it, to be written as files; once it is trained."""


TASKS: dict[str, Callable[[Order], Task]] = {
    FeatureSelectionSpec.kind: feature_selection.FeatureSelectionTask,
    VaeSpec.kind: vae.VaeTask,
    SparseRegressionSpec.kind: sparse_regression.SparseRegressionTask,
}


def prepare(order: Order) -> Task:
    """Return what trains as ordered.

    Raises:
        ValueError: the specification does not fit the data.
    """
    # With one thread sums have one order, and a resumed training ends with the very bits of
    # an undisturbed one.
    torch.set_num_threads(order.threads)
    return TASKS[order.spec.kind](order)

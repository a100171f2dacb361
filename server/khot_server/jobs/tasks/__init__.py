"""The kinds of job, each a task: from a specification to a call of `khot.training`.

A task has two halves. Preparing reads the specification and the data, and a ValueError
there says that they do not fit each other, which is the user's to mend; what it returns
does the training. `carry_out` drives both for an attempt.
"""

from collections.abc import Callable

import torch

from khot.training import Callbacks, Checkpoint
from khot_server.jobs.spec import FeatureSelectionSpec, Result, Spec
from khot_server.jobs.tasks import feature_selection

# Train, from a checkpoint if there is one; None: stopped after writing one.
Train = Callable[[Checkpoint | None, Callbacks], Result | None]

TASKS: dict[str, Callable[[Spec, torch.device], Train]] = {
    FeatureSelectionSpec.kind: feature_selection.prepare,
}


def prepare(spec: Spec, device: str) -> Train:
    """Return what trains by `spec` on `device`.

    Raises:
        ValueError: the specification does not fit the data.
    """
    # One thread for each attempt: sums then have one order, and a resumed training ends
    # with the very bits of an undisturbed one.
    torch.set_num_threads(1)
    return TASKS[spec.kind](spec, torch.device(device))

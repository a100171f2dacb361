"""What a task hands over when its training has ended, to be written as files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from khot_server.jobs.artifacts.history import History
from khot_server.jobs.artifacts.provenance import Provenance
from khot_server.jobs.results import Result
from khot_server.jobs.spec import Spec

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Data:
    """What the files say of the data.

    Attributes:
        name: of the data set, for people.
        names: of all features, in order.
        feature_shape: of an example, if it is a picture.
        mean, scale: what each feature was brought to mean 0 and deviation 1 with, (x - mean) /
            scale; None: it was not.
        fill: what stands for a missing value of each feature, before that; None: none may be
            missing.
        class_means: the mean training example of each class, (classes, n), in the units of
            the data set; None: there are no classes.
    """

    name: str
    names: tuple[str, ...]
    feature_shape: tuple[int, ...] = ()
    mean: Floats | None = None
    scale: Floats | None = None
    fill: Floats | None = None
    class_means: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What single units of a VAE's code do to what is decoded.

    Attributes:
        units: vector and number of each.
        changes: with the unit less without it, a row in [-1, 1] for each.
    """

    units: tuple[tuple[int, int], ...]
    changes: Floats


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What a VAE makes of examples, all in rows of [0, 1].

    Attributes:
        originals: of the test rows.
        reconstructions: of those, one for each.
        samples: from the prior.
        effects: of units, on codes of test rows.
    """

    originals: Floats
    reconstructions: Floats
    samples: Floats
    effects: Effects


@dataclass(frozen=True, kw_only=True)
class Reconstructed:
    """What a feature selection makes of test rows, all in rows of [0, 1].

    Attributes:
        originals: of the test rows.
        seen: of those, NaN where a feature was not chosen.
        reconstructions: of those, one for each.
    """

    originals: Floats
    seen: Floats
    reconstructions: Floats


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a regression makes of test rows.

    Attributes:
        true: their targets, (m,).
        predicted: what the model says instead, (m,).
    """

    true: Floats
    predicted: Floats


@dataclass(frozen=True, kw_only=True)
class Made:
    """A training that has ended.

    Attributes:
        config: the spec with every default, as JSON can hold it.
        history: what was measured in its course.
        marks: what happened after which epoch of the first stage, such as {"best": 17}.
        save_model: writes model.safetensors to the path it is given.
        examples: of a VAE.
        reconstructed: of a feature selection that reconstructs.
        predicted: of a sparse regression.
    """

    job_id: str
    spec: Spec
    config: Mapping[str, Any]
    result: Result
    history: History
    save_model: Callable[[Path], object]
    data: Data
    provenance: Provenance
    marks: Mapping[str, int] = field(default_factory=dict)
    examples: Examples | None = None
    reconstructed: Reconstructed | None = None
    predicted: Predicted | None = None

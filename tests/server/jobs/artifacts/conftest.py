"""Trainings that have ended, small ones of each kind."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from khot_server.jobs.artifacts import (
    Data,
    Effects,
    Examples,
    History,
    Made,
    Predicted,
    Reconstructed,
    provenance,
)
from khot_server.jobs.records import Point
from khot_server.jobs.results import FeatureSelectionResult, SparseRegressionResult, VaeResult
from khot_server.jobs.spec import FeatureSelectionSpec, SparseRegressionSpec, VaeSpec

# What somebody may call a column.
HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</td></table>&amp;&#39;",
    "cost in $ or $x^2_$",
    "two\nlines\tand \x07 bells",
    "日本語の列 \u202eright to left",
    "W" * 300,
    "",
)


def points(*stages: str, epochs: int = 4, names: tuple[str, ...] = ("loss", "accuracy")):
    """What a training of these stages tells: 3 steps an epoch, told of after the 2nd and 3rd."""
    step = 0
    for number, stage in enumerate(stages):
        prefix = f"{stage}." if number else ""
        for epoch in range(1, epochs + 1):
            value = 1 + number / 10 + 1 / epoch
            yield Point(step + 2, epoch, stage, {f"{prefix}loss": value})
            step += 3
            measured = {f"{prefix}validation_{name}": value / 2 for name in names}
            yield Point(step, epoch, stage, {f"{prefix}loss": value - 0.01} | measured)


def made_of(spec: Any, **parts: Any) -> Made:
    """With what the kinds have in common."""
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = provenance(
        spec, data_sha256="ab" * 32, device="cpu", threads=1, start_time=time, end_time=time
    )
    config = {"dataset": spec.dataset, "k": spec.k, "hidden": [64], "tau": 1.0, "last_tau": None}
    return Made(
        job_id="0123456789abcdef" * 2,
        spec=spec,
        config=config,
        save_model=lambda path: path.write_bytes(b"weights"),
        provenance=made,
        **parts,
    )


def selected(names: tuple[str, ...], k: int, **parts: Any) -> FeatureSelectionResult:
    """The first k, with falling probabilities; the last feature is constant."""
    n = len(names)
    scores = (*np.linspace(3, -3, n - 1).tolist(), float("-inf"))
    measured = parts.pop("test", {"loss": 0.31, "accuracy": 0.934})
    return FeatureSelectionResult(
        features=tuple(range(k)),
        names=names[:k],
        scores=scores,
        inclusion_probabilities=tuple(1 / (1 + np.exp(-np.array(scores)))),
        test=measured,
        validation=measured,
        stability=0.97,
        epochs_run=4,
        **parts,
    )


@pytest.fixture
def pixels() -> Made:
    """A selection of 10 of 64 pixels."""
    names = tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))
    means = np.random.default_rng(0).uniform(size=(3, 64))
    references = {"all": {"loss": 0.1, "accuracy": 0.972}, "random": {"loss": 0.6, "accuracy": 0.8}}
    classes, shape = ("0", "1", "2"), (8, 8)
    return made_of(
        FeatureSelectionSpec(dataset="digits", k=10),
        result=selected(names, 10, feature_shape=shape, classes=classes, references=references),
        history=History(points("selection", "reference_all", "reference_random")),
        data=Data(name="digits", names=names, feature_shape=shape, class_means=means),
        marks={"mask frozen": 2, "best": 3},
    )


@pytest.fixture
def again(pixels: Made) -> Made:
    """A selection of 10 of 64 pixels, which tell the others."""
    test = {"loss": 0.35, "rmse": 0.21, "r2": 0.7}
    rows = np.random.default_rng(4).uniform(size=(2, 13, 64))
    seen = np.where(np.arange(64) < 10, rows[0], np.nan)
    names = pixels.data.names
    return replace(
        pixels,
        spec=FeatureSelectionSpec(dataset="digits", k=10, objective="reconstruction"),
        result=selected(names, 10, feature_shape=(8, 8), test=test),
        history=History(points("selection", names=("loss", "rmse", "r2"))),
        data=replace(pixels.data, class_means=None),
        reconstructed=Reconstructed(originals=rows[0], seen=seen, reconstructions=rows[1]),
    )


@pytest.fixture
def table() -> Made:
    """A selection of 12 of 30 columns, standardized and filled, some with hostile names."""
    names = (*HOSTILE, *(f"column_{i}" for i in range(30 - len(HOSTILE))))
    random = np.random.default_rng(1)
    test = {"loss": 0.31, "rmse": 0.55, "r2": 0.812}
    return made_of(
        FeatureSelectionSpec(dataset="f" * 32, k=12, objective="regression"),
        result=selected(names, 12, test=test, warnings=HOSTILE[:1]),
        history=History(points("selection", names=("loss", "rmse", "r2"))),
        data=Data(
            name=HOSTILE[1],
            names=names,
            mean=random.normal(size=30).astype(np.float32),
            scale=random.uniform(1, 2, 30).astype(np.float32),
            fill=random.normal(size=30),
        ),
    )


@pytest.fixture
def vae() -> Made:
    """A VAE of pictures."""
    random = np.random.default_rng(2)
    measured = {"loss": 98.26, "reconstruction": 70.1, "prior": 28.16}
    rows = random.uniform(size=(3, 13, 64))
    return made_of(
        VaeSpec(dataset="digits", latents=4, n=6, k=3),
        result=VaeResult(
            test=measured,
            validation=measured,
            usage=tuple(random.uniform(size=24)),
            usage_shape=(4, 6),
            epochs_run=4,
        ),
        history=History(points("vae", names=("loss", "reconstruction", "prior"))),
        data=Data(name="digits", names=("pixel",) * 64, feature_shape=(8, 8)),
        examples=Examples(
            originals=rows[0],
            reconstructions=rows[1],
            samples=rows[2],
            effects=Effects(
                units=tuple((vector, unit) for vector in range(4) for unit in range(6)),
                changes=random.uniform(-0.3, 0.3, size=(24, 64)),
            ),
        ),
    )


@pytest.fixture
def vae_of_table(vae: Made) -> Made:
    """A VAE of what is no picture."""
    return replace(vae, data=replace(vae.data, feature_shape=()))


@pytest.fixture
def regression() -> Made:
    """A sparse regression on 10 of 30 columns, filled, some with hostile names."""
    names = (*HOSTILE, *(f"column_{i}" for i in range(30 - len(HOSTILE))))
    random = np.random.default_rng(3)
    scores = (*np.linspace(3, -3, 29).tolist(), float("-inf"))
    test, true = {"loss": 0.25, "rmse": 0.5, "r2": 0.901}, random.normal(size=300)
    return made_of(
        SparseRegressionSpec(dataset="f" * 32, k=10),
        result=SparseRegressionResult(
            features=tuple(range(10)),
            names=names[:10],
            coefficients=(-1.5, *random.normal(size=9).tolist()),
            intercept=0.25,
            target=HOSTILE[0],
            scores=scores,
            inclusion_probabilities=tuple(1 / (1 + np.exp(-np.array(scores)))),
            test=test,
            validation=test,
            references={"all": test | {"r2": 0.95}, "greedy": test | {"r2": 0.7}},
            stability=0.97,
            epochs_run=4,
            warnings=HOSTILE[:1],
        ),
        history=History(points("regression", names=("loss", "rmse", "r2"))),
        data=Data(name=HOSTILE[1], names=names, fill=random.normal(size=30)),
        predicted=Predicted(true=true, predicted=true + 0.1 * random.normal(size=300)),
    )


@pytest.fixture(params=["pixels", "again", "table", "vae", "vae_of_table", "regression"])
def made(request: pytest.FixtureRequest) -> Made:
    """One of each kind."""
    return request.getfixturevalue(request.param)

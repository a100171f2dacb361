"""The runs of a choice, and what is kept of each: a function of both for each kind. No I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from khot_client.jobs import Job
from khot_client.reproduce import figure5, ks, vae_curves
from khot_client.reproduce.runs import Run
from khot_client.reproduce.settings import Settings
from khot_client.specs import (
    FeatureSelection,
    FeatureSelectionResult,
    Result,
    SparseRegression,
    SparseRegressionResult,
    Vae,
)

HIDDEN = (512, 256)  # Appendix D
VALIDATION_SHARE = 1 / 12  # 5000 of the 60000 training rows; the 10000 test rows are their own
LOSSES = ("test_loss", "test_accuracy", "validation_loss")
SEARCHED = ("validation_loss",)
REFERENCE = "all_pixels"  # the same network, on all of them


@dataclass(frozen=True)
class Choice:
    """Which runs of an experiment are meant.

    Attributes:
        quick: those that take a minute, on data that is always there.
        k: how many are chosen, in place of what the settings say.
        once: data sets of which the first seed is enough.
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    quick: bool = False
    k: int | None = None
    once: tuple[str, ...] = ()


def selection(choice: Choice, known: Settings) -> list[Run]:
    """Feature selection by each method, on each data set, with each seed; references with one."""
    return [
        Run(method, _selection_spec(method, dataset, seed, choice, known))
        for dataset in choice.datasets
        for method in choice.methods
        for seed in (choice.seeds[:1] if method == REFERENCE else choice.seeds)
    ]


def _selection_spec(
    method: str, dataset: str, seed: int, choice: Choice, known: Settings
) -> FeatureSelection:
    fields = known.of(method, dataset, quick=choice.quick)
    usual: dict[str, Any] = {
        "hidden": HIDDEN,
        "validation_share": VALIDATION_SHARE,
        "references": False,
    }
    return FeatureSelection(dataset, seed=seed, **usual | {"estimator": method} | fields)


def vaes(choice: Choice, known: Settings) -> list[Run]:
    """A VAE by each method, of each data set, with each seed."""
    usual: dict[str, Any] = {
        "encoder": HIDDEN,
        "decoder": HIDDEN[::-1],
        "validation_share": VALIDATION_SHARE,
    }
    return [
        Run(
            method,
            Vae(
                dataset,
                seed=seed,
                **usual
                | {"estimator": method}
                | known.of(method, dataset, quick=choice.quick, kind=Vae),
            ),
        )
        for dataset in choice.datasets
        for method in choice.methods
        for seed in (choice.seeds[:1] if dataset in choice.once else choice.seeds)
    ]


def losses(result: Result, _: Job) -> dict[str, object]:
    """What a feature selection has reached.

    Of one with references, what its network reaches on all columns: it is run for that alone.
    """
    assert isinstance(result, FeatureSelectionResult)
    test, validation = result.test, result.validation
    if result.references:
        test, validation = result.references["all"], {}
    return {
        "test_loss": test["loss"],
        "test_accuracy": test.get("accuracy"),
        "validation_loss": validation.get("loss"),
    }


def validation(result: Result, _: Job) -> dict[str, object]:
    """What settings are chosen by: nothing of the test rows."""
    found = result.validation
    return {"validation_loss": vae_curves.loss(found) if found else None}


def learned_k(choice: Choice, known: Settings) -> list[Run]:
    fixed, guesses = figure5.QUICK if choice.quick else figure5.WHOLE
    learned = {"penalty": figure5.PENALTY}
    tried: dict[str, list[dict[str, Any]]] = {
        figure5.FIXED: [{"k": k} for k in fixed],
        figure5.LEARNED: [{**learned, "initial_k": float(k)} for k in guesses],
    }
    return [
        Run(
            method,
            replace(_selection_spec(method, dataset, seed, choice, known), **own),
            note(own, ("k", "initial_k")),
        )
        for dataset in choice.datasets
        for method in choice.methods
        for own in tried[method]
        for seed in choice.seeds
    ]


def note(values: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {values[name]:g}" for name in names if name in values)


def losses_and_k(result: Result, job: Job) -> dict[str, object]:
    assert isinstance(result, FeatureSelectionResult)
    return {"k": len(result.features), **losses(result, job)}


def equations(choice: Choice, known: Settings) -> list[Run]:
    """The terms of an equation, by each method, in each field, with each seed."""
    return [
        Run(
            method,
            SparseRegression(
                dataset,
                k=choice.k or ks.TERMS,
                estimator=method,
                seed=seed,
                intercept=False,
                references=False,
                **known.of(method, dataset, quick=choice.quick, kind=SparseRegression),
            ),
        )
        for dataset in choice.datasets
        for method in choice.methods
        for seed in choice.seeds
    ]


def terms(result: Result, _: Job) -> dict[str, object]:
    """What equation was found."""
    assert isinstance(result, SparseRegressionResult)
    return ks.measured(result)

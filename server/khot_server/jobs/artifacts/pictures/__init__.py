"""The pictures of a job, as PNG; importing this loads matplotlib."""

import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

from khot_server.jobs.artifacts.made import Made
from khot_server.jobs.artifacts.pictures import curves, regression, selection, units, vae
from khot_server.jobs.artifacts.pictures.drawing import styled
from khot_server.jobs.results import FeatureSelectionResult, SparseRegressionResult, VaeResult

# The name of a file, what draws it (None: there is nothing to draw), and what it shows.
Wanted = tuple[str, Callable[[], bytes | None], str]


class Picture(NamedTuple):
    """A picture and what it shows."""

    png: bytes
    caption: str


def pictures(made: Made) -> dict[str, Picture]:
    """Return the pictures of a training by the names of their files.

    One that cannot be drawn is left out, and the log says why: for a picture, nothing that
    took hours to learn is lost.
    """
    drawn: dict[str, Picture] = {}
    for name, draw, caption in _wanted(made):
        try:
            with styled():
                png = draw()
        except Exception:
            traceback.print_exc()
            continue
        if png is not None:
            drawn[name] = Picture(png, caption)
    return drawn


def _wanted(made: Made) -> Iterator[Wanted]:
    if isinstance(made.result, FeatureSelectionResult):
        yield from _of_selection(made, made.result)
    elif isinstance(made.result, SparseRegressionResult):
        yield from _of_regression(made, made.result)
    else:
        yield from _of_vae(made, made.result)
    yield (
        "curves.png",
        lambda: curves.curves(made.history, made.marks),
        "What was measured on the validation rows, after each epoch.",
    )


def _of_selection(made: Made, result: FeatureSelectionResult) -> Iterator[Wanted]:
    data, shape, again = made.data, _shape(result.feature_shape), made.reconstructed
    if shape is None:
        yield _columns(made, result)
    else:
        yield (
            "inclusion.png",
            lambda: selection.inclusion(result, shape, data.class_means),
            "How likely each pixel was to be chosen at the end of the training, and which were.",
        )
    if again is not None:
        parts = {
            "original": again.originals,
            "seen": again.seen,
            "reconstructed": again.reconstructions,
        }
        yield (
            "reconstructions.png",
            lambda: vae.reconstructions(parts, shape),
            "Test examples, what was chosen of them, and what the network makes of that alone.",
        )


def _of_regression(made: Made, result: SparseRegressionResult) -> Iterator[Wanted]:
    predicted = made.predicted
    yield (
        "coefficients.png",
        lambda: regression.coefficients(result),
        "What each chosen column is multiplied with.",
    )
    yield _columns(made, result)
    if predicted is not None:
        yield (
            "predictions.png",
            lambda: regression.predictions(predicted, result.target),
            "What the model says of test rows, against what is true. Dashed: where both agree.",
        )


def _columns(made: Made, result: FeatureSelectionResult | SparseRegressionResult) -> Wanted:
    caption = "How likely each column was to be chosen at the end of the training. Blue: chosen."
    return "columns.png", lambda: selection.columns(result, made.data.names), caption


def _of_vae(made: Made, result: VaeResult) -> Iterator[Wanted]:
    shape, examples = _shape(made.data.feature_shape), made.examples
    if examples is not None:
        parts = {"original": examples.originals, "reconstructed": examples.reconstructions}
        yield (
            "reconstructions.png",
            lambda: vae.reconstructions(parts, shape),
            "Test examples, and what is left of them in the code.",
        )
        yield (
            "samples.png",
            lambda: vae.samples(examples.samples, shape),
            "What codes drawn from the prior are decoded to.",
        )
        yield (
            "units.png",
            lambda: units.units(examples.effects, result.usage_shape, shape),
            "What single units draw: how what is decoded changes, on average over test rows, when "
            "a unit is one in place of another of its vector. Red: more; blue: less.",
        )
    yield (
        "usage.png",
        lambda: vae.usage(result),
        "How often each unit is one on the test rows: if all are used alike, k/n.",
    )


def _shape(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The shape of a picture in shades of grey; others are shown as tables are."""
    return (shape[0], shape[1]) if len(shape) == 2 else None

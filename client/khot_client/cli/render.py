"""How what was learned looks in a terminal: the chosen features, the use of units, and numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, RenderableType
from rich.panel import Panel
from rich.text import Text

from khot_client.cli.progress import number, words
from khot_client.specs import FeatureSelectionResult, Result, SparseRegressionResult, VaeResult

COLD, HOT = np.array([70, 80, 190]), np.array([255, 200, 60])
LONGEST_BAR = 30
SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Framed:
    """A picture with a title: in a frame on a terminal, bare elsewhere."""

    title: str
    picture: Text

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield it as the console takes it."""
        del options
        if console.is_terminal:
            yield Panel(self.picture, title=self.title, expand=False, padding=(0, 1))
        else:
            yield Text(self.title)
            yield self.picture


@dataclass(frozen=True)
class Described:
    """A result: its picture, and how well it does."""

    result: Result

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield it as the console takes it."""
        del console, options
        result = self.result
        lines = [_scored("test", result.test)]
        if isinstance(result, VaeResult):
            latents, n = result.usage.shape
            yield Framed(f"use of {latents} x {n} units", heat_map(result.usage))
        else:
            of = f"{len(result.features)} of {len(result.scores)} features"
            if isinstance(result, FeatureSelectionResult):
                yield Framed(of, picture(result))
            else:
                yield Framed(of, equation(result))
            lines += [_scored(f"{name} features", m) for name, m in result.references.items()]
        yield Text("\n".join([*lines, *result.warnings]))


def describe(result: Result) -> RenderableType:
    """What was learned: the chosen features as a picture, and how well they do."""
    return Described(result)


def _scored(who: str, metrics: Mapping[str, float]) -> str:
    return f"{who}: " + ", ".join(f"{words(n)} {number(n, v)}" for n, v in metrics.items())


def picture(result: FeatureSelectionResult) -> Text:
    """The chosen features: cells of the picture that an example is, or a list with bars.

    A bar is as long as the feature was likely to be chosen at the end of training.
    """
    strengths = _strengths(result)
    if len(result.feature_shape) == 2:
        return _grid(result.feature_shape, strengths)
    names = result.names or tuple(map(str, strengths))
    width = max(map(len, names), default=0)
    lines = []
    for name, (index, strength) in zip(names, strengths.items(), strict=True):
        likely = float(result.inclusion_probabilities[index])
        bar = "█" * round(likely * LONGEST_BAR)
        lines.append(Text.assemble(f"{name:>{width}} ", (bar, _colour(strength)), f" {likely:.3f}"))
    return Text("\n").join(lines)


def equation(result: SparseRegressionResult) -> Text:
    """The model that was found, and a line for each of its columns: name, coefficient, bar.

    A bar is as long as the column was likely to be drawn at the end of training.
    """
    lines, width = [Text(result.equation), Text()], max(map(len, result.names))
    for name, value, index in zip(
        result.names, result.coefficients.tolist(), result.features.tolist(), strict=True
    ):
        likely = float(result.inclusion_probabilities[index])
        bar = "█" * round(likely * LONGEST_BAR)
        said = f"{name:>{width}} {value:>12.6g} "
        lines.append(Text.assemble(said, (bar, _colour(likely)), f" {likely:.3f}"))
    return Text("\n").join(lines)


def heat_map(values: NDArray[np.float64]) -> Text:
    """Values in [0, 1] as cells, a row a line."""
    rows = []
    for row in np.nan_to_num(np.clip(values, 0.0, 1.0)).tolist():
        cells = [(SHADES[round(v * (len(SHADES) - 1))] * 2, _colour(v)) for v in row]
        rows.append(Text.assemble(*cells))
    return Text("\n").join(rows)


def _grid(shape: tuple[int, ...], strengths: Mapping[int, float]) -> Text:
    height, width = shape
    text = Text()
    for index in range(height * width):
        if index and index % width == 0:
            text.append("\n")
        if index in strengths:
            text.append("██", _colour(strengths[index]))
        else:
            text.append("· ", "dim")
    return text


def _strengths(result: FeatureSelectionResult) -> dict[int, float]:
    """The chosen features, with their scores brought to [0, 1] among themselves."""
    chosen = result.scores[result.features]
    if not len(chosen):
        return {}
    span = float(np.ptp(chosen)) or 1.0
    scaled = (chosen - chosen.min()) / span
    return dict(zip(result.features.tolist(), scaled.tolist(), strict=True))


def _colour(strength: float) -> str:
    red, green, blue = (COLD + strength * (HOT - COLD)).round().astype(int)
    return f"rgb({red},{green},{blue})"

"""How a job looks in a terminal: a bar while it runs, and the chosen features at its end.

Where the output is no terminal, progress is a line for each state and each evaluation.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from khot_client.values import Event, FeatureSelectionResult, StateChanged

COLD, HOT = np.array([70, 80, 190]), np.array([255, 200, 60])
LONGEST_BAR = 30


def show_progress(console: Console, events: Iterable[Event]) -> None:
    """Show the events of a job as they come."""
    if console.is_terminal:
        _live(console, events)
    else:
        _lines(console, events)


def _live(console: Console, events: Iterable[Event]) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[metrics]}"),
    )
    seen: dict[str, float] = {}  # accuracy comes less often than loss, and stays
    with Bar(*columns, console=console) as bar:
        task = bar.add_task("queued", total=None, metrics="")
        for event in events:
            if isinstance(event, StateChanged):
                bar.update(task, description=event.state.lower())
                if event.message:
                    console.print(event.message)
                continue
            seen |= event.metrics
            done, total = event.step, event.total_steps
            bar.update(task, completed=done, total=total, metrics=_metrics(seen))


def _lines(console: Console, events: Iterable[Event]) -> None:
    for event in events:
        if isinstance(event, StateChanged):
            said = f": {event.message}" if event.message else ""
            console.out(f"{event.state.lower()}{said}")
        elif "test_accuracy" in event.metrics:
            console.out(f"step {event.step}/{event.total_steps}  {_metrics(event.metrics)}")


def _metrics(metrics: Mapping[str, float]) -> str:
    shown = []
    if "loss" in metrics:
        shown.append(f"loss {metrics['loss']:.3f}")
    if "test_accuracy" in metrics:
        shown.append(f"test accuracy {metrics['test_accuracy']:.1%}")
    return "  ".join(shown)


def describe(result: FeatureSelectionResult) -> RenderableType:
    """The chosen features as a picture, and how well they do."""
    of = f"{len(result.features)} of {len(result.scores)} features"
    panel = Panel(picture(result), title=of, expand=False, padding=(0, 1))
    numbers = f"test accuracy {result.test_accuracy:.1%}, test loss {result.test_loss:.3f}"
    return Group(panel, Text(numbers))


def picture(result: FeatureSelectionResult) -> Text:
    """The chosen features: cells of the picture that an example is, or a list with bars."""
    strengths = _strengths(result)
    if len(result.feature_shape) == 2:
        return _grid(result.feature_shape, strengths)
    width = len(str(len(result.scores) - 1))
    text = Text()
    for index, strength in strengths.items():
        bar = "█" * (1 + round(strength * (LONGEST_BAR - 1)))
        text.append(f"{index:>{width}} ")
        text.append(bar, _colour(strength))
        text.append(f" {result.scores[index]:.3f}\n")
    text.rstrip()
    return text


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
    span = float(np.ptp(chosen)) or 1.0
    scaled = (chosen - chosen.min()) / span
    return dict(zip(result.features.tolist(), scaled.tolist(), strict=True))


def _colour(strength: float) -> str:
    red, green, blue = (COLD + strength * (HOT - COLD)).round().astype(int)
    return f"rgb({red},{green},{blue})"

"""How a job looks while it runs: a bar in a terminal, else some lines."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar

from khot_client.job_values import Event, GroupStatus, JobState, Progress, StateChanged

WIDE = 100
LINES = 20  # of progress, where a bar cannot be drawn
# What people look at first, if it is measured.
_FIRST = ("loss", "validation_accuracy", "validation_r2", "validation_elbo", "validation_loss")
_SHOWN = 2


def show_progress(console: Console, events: Iterable[Event]) -> None:
    """Show the events of a job as they come."""
    if console.is_terminal:
        _live(console, events)
    else:
        _lines(console, events)


def _live(console: Console, events: Iterable[Event]) -> None:
    wide = console.width >= WIDE
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24 if wide else 12),
        MofNCompleteColumn(),
        *([TimeElapsedColumn()] if wide else []),
        TextColumn("{task.fields[told]}"),
    )
    seen: dict[str, float] = {}  # accuracy comes less often than loss, and stays
    stage = ""
    with Bar(*columns, console=console) as bar:
        task = bar.add_task("queued", total=None, told="")
        for event in events:
            if isinstance(event, StateChanged):
                bar.update(task, description=event.state.lower())
                if event.state is JobState.SUCCEEDED:
                    # perhaps before the last step; and the last stage is not the one that counts
                    bar.update(task, total=bar.tasks[0].completed, told="")
                if event.message:
                    bar.console.print(f"{event.state.lower()}: {event.message}", markup=False)
                continue
            if event.stage != stage:
                stage, seen = event.stage, {}
            seen |= event.metrics
            done, total = event.step, event.total_steps
            where = f"{_stage(stage)} {event.epoch}" if stage else "running"
            taken = len(f"{where} {done}/{total} ") + (35 if wide else 14)
            measured, pace = _measured(seen), _pace(event)
            # what matters most goes first, should there be no room for all
            parts = [*measured[:1], *pace[1:], *measured[1:], *pace[:1]]
            told = _fitting(parts, console.width - taken)
            bar.update(task, completed=done, total=total, description=where, told=told)


def _lines(console: Console, events: Iterable[Event]) -> None:
    due, passed_over, stage = 0.0, "", ""
    seen: dict[str, float] = {}
    for event in events:
        if isinstance(event, StateChanged):
            if passed_over:  # the last word before a change
                console.out(passed_over)
                passed_over = ""
            said = f": {event.message}" if event.message else ""
            console.out(f"{event.state.lower()}{said}")
            continue
        if event.stage != stage:
            stage, seen = event.stage, {}
        seen |= event.metrics
        share = event.step / max(1, event.total_steps)
        if share < due:
            passed_over = _line(event, seen)
            continue
        console.out(_line(event, seen))
        due, passed_over = share + 1 / LINES, ""


def _line(event: Progress, metrics: Mapping[str, float]) -> str:
    where = f"step {event.step}/{event.total_steps}"
    if event.stage:
        where += f"  {_stage(event.stage)} epoch {event.epoch}"
    return "  ".join([where, *_measured(metrics), *_pace(event)])


def _fitting(parts: list[str], room: int) -> str:
    """As many of the parts as fit, the first ones first."""
    while parts and len("  ".join(parts)) > room:
        parts.pop()
    return "  ".join(parts)


def _stage(stage: str) -> str:
    return stage.replace("_", " ")


def _pace(event: Progress) -> list[str]:
    pace = [f"{event.steps_per_s:.0f} steps/s"] if event.steps_per_s else []
    return [*pace, f"{_duration(event.remaining_s)} left"] if event.remaining_s else pace


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _measured(metrics: Mapping[str, float]) -> list[str]:
    """The loss, and how good it is on rows that are not trained on."""
    # the stage is told beside them
    named = {name.rpartition(".")[2]: value for name, value in metrics.items()}
    first = [name for name in _FIRST if name in named] or list(named)
    return [f"{words(name)} {number(name, named[name])}" for name in first[:_SHOWN]]


def words(name: str) -> str:
    """The name of a measurement."""
    return name.replace("_", " ").replace(".", " ")


def number(name: str, value: float) -> str:
    """The value of a measurement."""
    return f"{value:.1%}" if name.endswith("accuracy") else f"{value:.4g}"


class Transfer:
    """A bar for files on their way; nothing where there is no terminal, or for tiny files."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=console, disable=quiet or not console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Transfer":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def told(self, name: str, done: int, total: int) -> None:
        """So many bytes of it have arrived."""
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total)
        self._bar.update(self._tasks[name], completed=done)


@contextmanager
def counting(
    console: Console, total: int, *, quiet: bool = False
) -> Iterator[Callable[[GroupStatus], None]]:
    """A bar for the jobs of a group; call what comes back with its status."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    lines = not (quiet or console.is_terminal)
    with Bar(*columns, TimeElapsedColumn(), console=console, disable=quiet or lines) as bar:
        task = bar.add_task("jobs", total=total)

        def told(status: GroupStatus) -> None:
            ended = sum(count for state, count in status.states.items() if state.ended)
            said = ", ".join(f"{count} {state.lower()}" for state, count in status.states.items())
            bar.update(task, completed=ended, description=said)
            if lines:
                console.out(f"{ended}/{total} ended: {said}")

        yield told

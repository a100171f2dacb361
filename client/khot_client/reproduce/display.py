"""How an experiment looks while it runs: bars in a terminal, else a line for each run."""

from collections.abc import Mapping
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from khot_client.job_values import Progress
from khot_client.reproduce.drive import Failure
from khot_client.reproduce.ledger import number
from khot_client.reproduce.runs import Run

_LOSSES = ("test_loss", "test_rmse", "validation_loss")


def remaining_s(
    running: Mapping[Run, Progress | None], waiting: int, taken_s: list[float]
) -> float | None:
    """How long it may take still; None if nothing is known yet.

    Args:
        running: what runs now, side by side.
        waiting: how many runs have not begun.
        taken_s: by runs that have ended.
    """
    known = [progress for progress in running.values() if progress and progress.steps_per_s]
    whole = taken_s or [progress.total_steps / progress.steps_per_s for progress in known]
    if not running or not whole:
        return None
    each = fmean(whole)
    left = [
        progress.remaining_s if progress and progress.steps_per_s else each
        for progress in running.values()
    ]
    return max((sum(left) + waiting * each) / len(running), *left)


class Display:
    """An audience at a console.

    Args:
        console: where to.
        done: runs with a row from another time.
        total: all runs.
        quiet: tell of failures alone.
    """

    def __init__(self, console: Console, done: int, total: int, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._done, self._total, self._taken_s = done, total, list[float]()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
        )
        self._bars = Bars(*columns, console=console, disable=quiet or not console.is_terminal)
        self._all = self._bars.add_task("runs", total=total, completed=done, told="")
        self._each: dict[Run, TaskID] = {}

    def __enter__(self) -> "Display":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._each.values():
            self._bars.remove_task(task)
        self._bars.stop()

    def began(self, waiting: int, picked_up: int) -> None:
        self._say(
            f"{self._total} runs: {self._done} done before, {picked_up} picked up,"
            f" {waiting - picked_up} submitted"
        )

    def running(self, runs: Mapping[Run, Progress | None]) -> None:
        for run in [run for run in self._each if run not in runs]:
            self._bars.remove_task(self._each.pop(run))
        for run, progress in runs.items():
            if run not in self._each:
                self._each[run] = self._bars.add_task(f"  {run}", total=None, told="")
            if progress is not None:
                task, (step, total) = self._each[run], (progress.step, progress.total_steps)
                self._bars.update(task, completed=step, total=total, told=_told(progress))
        left = remaining_s(runs, self._total - self._done - len(runs), self._taken_s)
        told = "" if left is None else f"{duration(left)} left"
        self._bars.update(self._all, completed=self._done, told=told)

    def ended(self, run: Run, row: Mapping[str, str]) -> None:
        self._done += 1
        self._taken_s.append(number(row, "seconds"))
        self._bars.update(self._all, completed=self._done)
        name = next(name for name in _LOSSES if name in row)
        took = duration(number(row, "seconds"))
        loss = f"{name.replace('_', ' ')} {number(row, name):.4g}"
        self._say(f"{self._done}/{self._total}  {run}: {loss} in {took}")

    def failed(self, failure: Failure) -> None:
        self._total -= 1
        self._bars.update(self._all, total=self._total)
        self._console.print(
            f"failed: {failure.run}: {failure.message}", markup=False, soft_wrap=True
        )

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, markup=False, soft_wrap=True)


def _told(progress: Progress) -> str:
    loss = progress.metrics.get("loss")
    left = f"{duration(progress.remaining_s)} left" if progress.remaining_s else ""
    return "  ".join(part for part in (f"loss {loss:.4g}" if loss else "", left) if part)


def duration(seconds: float) -> str:
    """A time as people read it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

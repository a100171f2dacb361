"""`khot reproduce`: run an experiment of a paper, and put its numbers beside ours."""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from khot_client.cli import wishes
from khot_client.cli.faults import JOB_FAILED
from khot_client.cli.machine import find_server
from khot_client.cli.options import Session, spread
from khot_client.cli.output import print_json, terminal
from khot_client.client import Client
from khot_client.errors import BadSettings
from khot_client.settings import read_profile

if TYPE_CHECKING:
    from khot_client.reproduce.drive import Failure
    from khot_client.reproduce.experiments import Experiment
    from khot_client.reproduce.ledger import Ledger, Row
    from khot_client.reproduce.plans import Choice
    from khot_client.reproduce.runs import Run

NAMES = (
    *("table3", "table3-classes", "figure5", "ks"),
    *("table4", "table4-mean", "table4-large", "dvae"),
)
IN_REPOSITORY, ELSEWHERE = Path("tests/bench/results"), Path("results")


@dataclass(frozen=True)
class Wanted:
    """Which runs, and what of them."""

    panel: ClassVar[str] = "Runs"

    datasets: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,NAME", help="Only these.", show_default="all"),
    ] = None
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,NAME", help="Only these.", show_default="all"),
    ] = None
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="5", help="So many, from 0; or 0-4, or 1,2,7.", show_default="the paper's"
        ),
    ] = None
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute of it on digits, to see that it works.")
    ] = False
    search: Annotated[
        bool, typer.Option("--search", help="Try the grid of settings.toml, by validation loss.")
    ] = False
    write: Annotated[
        bool, typer.Option("--write", help="With --search: write the best into settings.toml.")
    ] = False
    render: Annotated[
        bool, typer.Option("--render", help="Only draw table and picture again, of the CSV.")
    ] = False
    field: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="Of ks: find the equation of this field, arrays x, t and u(t, x), instead.",
            show_default=False,
        ),
    ] = None
    terms: Annotated[
        int | None,
        typer.Option(min=1, help="With --field: how many the equation has.", show_default="3"),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for CSV, table and picture, and the state of a server of its own.",
            show_default=f"./{IN_REPOSITORY} in the repository, else ./{ELSEWHERE}",
        ),
    ] = None

    def choice(self, experiment: "Experiment") -> "Choice":
        """The runs that are meant.

        Raises:
            BadSettings: a name is unknown, or options do not go together.
        """
        if self.write and not self.search:
            raise BadSettings("write: must come with --search; got it alone")
        if self.write and self.quick:
            raise BadSettings("write: must be of a whole search; got it with --quick")
        if self.search and self.seeds:
            raise BadSettings("seeds: must be absent with --search, which has its own; got some")
        if self.field and experiment.name != "ks":
            raise BadSettings(f"field: must be of ks; got it with {experiment.name}")
        if self.terms and not self.field:
            raise BadSettings("terms: must come with --field; got it alone")
        if self.field and self.datasets:
            raise BadSettings("datasets: must be absent with --field; got some")
        chosen = experiment.choose(
            _names(self.datasets), _names(self.methods), _seeds(self.seeds), quick=self.quick
        )
        if not self.field:
            return chosen
        return replace(chosen, datasets=(_named_by_content(self.field),), k=self.terms)

    def stem(self, experiment: "Experiment") -> str:
        """What the files are called."""
        parts = [experiment.name, *([self.field.stem] if self.field else [])]
        parts += ["quick"] if self.quick else []
        return "_".join([*parts, *(["search"] if self.search else [])])

    @property
    def folder(self) -> Path:
        """Where they go."""
        return self.out or (IN_REPOSITORY if IN_REPOSITORY.parent.is_dir() else ELSEWHERE)


@spread
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help=f"{', '.join(NAMES[:-1])} or {NAMES[-1]}.",
            show_default=False,
            autocompletion=lambda: list(NAMES),
        ),
    ],
    wanted: Wanted,
    session: Session,
) -> None:
    """Run an experiment of a paper, and put its numbers beside ours: CSV, table and picture.

    It starts a server of its own, unless one is named. It can be stopped and run again: what
    has a row in the CSV is not run again, and what had begun goes on.

    Example: khot reproduce table3 --quick --out results
    """
    from khot_client.reproduce import experiments, plans
    from khot_client.reproduce.ledger import Ledger

    found = experiments.find(experiment)
    choice = wanted.choice(found)
    runs = found.search(choice) if wanted.search else found.runs(choice)
    measured = plans.SEARCHED if wanted.search else found.measured
    ledger = Ledger(wanted.folder / f"{wanted.stem(found)}.csv", measured)
    failures: list[Failure] = []
    if not wanted.render and ledger.missing(runs):
        with _way_back(ledger, runs, session):
            failures = _carry_out(found, runs, ledger, wanted, session)
    rows = [row for run in runs for row in ledger.rows if row["settings"] == run.settings]
    written = _render(found, ledger, wanted, session)
    if session.as_json:
        for row in ledger.rows if wanted.render else rows:
            print_json(_parsed(row))
    else:
        if wanted.field:
            for equation in dict.fromkeys(row["equation"] for row in rows):
                typer.echo(equation)
        for path in written:
            typer.echo(path)
    if failures:
        again = "Run it again to try them again, from their last checkpoints"
        told = f"khot: {experiment}: {len(failures)} of {len(runs)} runs failed. {again}"
        typer.echo(told, err=True)
        raise typer.Exit(JOB_FAILED)


def _carry_out(
    found: "Experiment", runs: list["Run"], ledger: "Ledger", wanted: Wanted, session: Session
) -> "list[Failure]":
    from khot_client.reproduce import plans
    from khot_client.reproduce.commit import commit
    from khot_client.reproduce.display import Display
    from khot_client.reproduce.drive import Driver

    measure = plans.validation if wanted.search else found.measure
    stem, code = wanted.stem(found), commit()
    console, done = terminal(), len(runs) - len(ledger.missing(runs))
    with (
        _server(wanted.folder / ".state" / stem, session) as (client, alone, check),
        Display(console, done, len(runs), quiet=session.as_json) as display,
    ):
        sent = {runs[0].dataset: client.upload(wanted.field).id} if wanted.field else {}
        driver = Driver(client, stem, ledger, measure, display, code, alone, check, sent)
        return driver.carry_out(runs)


@contextmanager
def _server(state: Path, session: Session) -> Iterator[tuple[Client, bool, Any]]:
    """The server that was named, or one of our own; whether so, and what sees that it lives."""
    if _is_named(session):
        with session.connect() as client:
            yield client, False, lambda: None
        return
    from khot_client.reproduce.server import local_server

    with (
        local_server(find_server("reproduce"), state) as server,
        # whatever variables say of another one
        Client(server.address, tls=False, timeout_s=session.timeout) as client,
    ):
        yield client, True, server.check


def _is_named(session: Session) -> bool:
    return bool(session.address or session.profile or read_profile(None).get("address"))


@contextmanager
def _way_back(ledger: "Ledger", runs: list["Run"], session: Session) -> Iterator[None]:
    """Say how to go on, if Ctrl-C ends it here."""
    try:
        yield
    except KeyboardInterrupt:
        done = len(runs) - len(ledger.missing(runs))
        kept = f"{done} of {len(runs)} runs are in {ledger.path}"
        rest = "the others go on" if _is_named(session) else "the others wait"
        again = shlex.join(["khot", *_without_token(sys.argv[1:])])
        raise KeyboardInterrupt(f"stopped; {kept}, {rest}. Go on with: {again}") from None


def _without_token(words: list[str]) -> list[str]:
    """The words of a command that anybody may see."""
    hidden = {i + j for i, word in enumerate(words) if word == "--token" for j in (0, 1)}
    shown = (word for i, word in enumerate(words) if i not in hidden)
    return [word for word in shown if not word.startswith("--token=")]


def _render(found: "Experiment", ledger: "Ledger", wanted: Wanted, session: Session) -> list[Path]:
    """Write what is made of the CSV, and return what there is now."""
    if not ledger.rows:
        if wanted.render:
            raise BadSettings(f"{ledger.path}: must have rows to be drawn; got none")
        return []
    from khot_client.reproduce import report, search, settings
    from khot_client.reproduce.ledger import latest

    page, picture = ledger.path.with_suffix(".md"), ledger.path.with_suffix(".png")
    if wanted.search:
        known = settings.load(found.name)
        page.write_text(search.page(found.name, ledger.rows, known))
        best = search.blocks(found.name, search.best(ledger.rows, known))
        if wanted.write:
            settings.PATH.write_text(settings.write(settings.PATH.read_text(), best))
            return [ledger.path, page, settings.PATH]
        if not session.as_json:
            typer.echo("\n\n".join(best) + "\n")
        return [ledger.path, page]
    page.write_text(report.page(found, ledger.rows, ledger.path.stem, quick=wanted.quick))
    try:
        found.draw(latest(ledger.rows, found.varied), found.reported, picture)
    except BadSettings as error:  # a table without a picture is worth having
        typer.echo(f"khot: {error.message}", err=True)
        return [ledger.path, page]
    return [ledger.path, page, picture]


def _named_by_content(path: Path) -> str:
    """What rows call a file: another file of the same name is other data."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadSettings(f"{path}: must be a file with a field; got {error.strerror}") from None
    return f"{path.stem}-{hashlib.sha256(content).hexdigest()[:8]}"


def _names(given: list[str] | None) -> list[str]:
    return [name.strip() for word in given or () for name in word.split(",") if name.strip()]


def _seeds(given: list[str] | None) -> list[int]:
    """Those that are meant: a lone number stands for all below it."""
    words = [word.rstrip(",") for word in given or ()]
    if len(words) == 1 and re.fullmatch(r"\d+", given[0] if given else ""):
        if words == ["0"]:
            raise BadSettings("seeds: must be at least one; got 0")
        return list(range(int(words[0])))
    return list(dict.fromkeys(seed for word in words for seed in wishes.numbers(word)))


def _parsed(row: "Row") -> dict[str, Any]:
    """A row with numbers and settings in place of text."""
    parsed: dict[str, Any] = {}
    for name, text in row.items():
        try:
            parsed[name] = None if text == "" else json.loads(text)
        except ValueError:
            parsed[name] = text
    # what only looks like a number
    return parsed | {name: row[name] for name in ("khot", "torch", "commit") if name in row}

"""Which experiments there are: a row for each, with its runs and what is kept of them. No I/O.

An experiment of jobs of another kind is a row here, its settings in `settings.toml`, and what
the paper reports in `published.py`. `measure` gets the job as well as its result, for one whose
rows keep more than a result has, such as the loss of some epochs (`Job.metrics`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from khot_client.errors import BadSettings
from khot_client.jobs import Job
from khot_client.reproduce import (
    dvae,
    figure5,
    ks,
    loss_table,
    plans,
    published,
    settings,
    vae_curves,
)
from khot_client.reproduce.ledger import Row
from khot_client.reproduce.plans import Choice, note
from khot_client.reproduce.published import Reported
from khot_client.reproduce.runs import Run
from khot_client.reproduce.settings import Settings
from khot_client.specs import Result

Plan = Callable[[Choice, Settings], list[Run]]
Measure = Callable[[Result, Job], dict[str, object]]


@dataclass(frozen=True)
class Experiment:
    """What a paper did, and we do again.

    Attributes:
        title: one line.
        whole: all its data sets, methods and seeds.
        quick: what --quick is of.
        plan: makes the runs of a choice.
        measured: the columns of the CSV that are its own.
        measure: what is in them, of a job that has succeeded.
        table: the Markdown between title and settings.
        draw: makes the picture, on axes of matplotlib.
        reported: what the paper says, by data set and method.
        varied: the settings in which the runs of a method differ.
        unknown: what the paper leaves open, in words.
        searchable: whether --search has a meaning.
        selected_in: the experiment whose --search chose the settings of each method.
        also: methods that the paper does not have, run only if they are named.
    """

    name: str
    title: str
    whole: Choice
    quick: Choice
    plan: Plan
    measured: tuple[str, ...]
    measure: Measure
    table: Callable[[Sequence[Row], Mapping[tuple[str, str], Reported]], str]
    draw: Callable[[Sequence[Row], Mapping[tuple[str, str], Reported], Path], None]
    reported: Mapping[tuple[str, str], Reported] = field(default_factory=dict)
    varied: tuple[str, ...] = ("seed",)
    unknown: str = ""
    searchable: bool = False
    selected_in: str = ""
    also: tuple[str, ...] = ()

    def choose(
        self,
        datasets: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: Sequence[int] = (),
        *,
        quick: bool = False,
    ) -> Choice:
        """What is asked for; where nothing is, all.

        Raises:
            BadSettings: one has an unknown name.
        """
        usual = self.quick if quick else self.whole
        known = (*self.quick.datasets, *self.whole.datasets) if quick else self.whole.datasets
        return Choice(
            _among("datasets", datasets, known) or usual.datasets,
            _among("methods", methods, (*self.whole.methods, *self.also)) or usual.methods,
            tuple(seeds) or usual.seeds,
            quick,
            once=() if seeds else usual.once,
        )

    def runs(self, choice: Choice) -> list[Run]:
        """The runs of a choice."""
        return self.plan(choice, settings.load(self.name))

    def search(self, choice: Choice) -> list[Run]:
        """The runs that try the grid of `settings.toml`: the same for each method.

        Raises:
            BadSettings: this experiment has no search.
        """
        if not self.searchable:
            names = ", ".join(row.name for row in _ROWS if row.searchable)
            raise BadSettings(f"search: must be of {names}; got {self.name}")
        known = settings.load(self.name)
        return [
            Run(run.method, replace(run.spec, **tried), note(tried, known.grid))
            for run in self.plan(replace(choice, seeds=(0,)), known)
            if run.method != plans.REFERENCE
            for tried in known.searched(run.method, type(run.spec))
        ]


def find(name: str) -> Experiment:
    """The experiment of this name.

    Raises:
        BadSettings: there is none.
    """
    _among("experiment", [name], tuple(EXPERIMENTS))
    return EXPERIMENTS[name]


def _among(who: str, names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            raise BadSettings(f"{who}: must be among {', '.join(known)}; got {name!r}")
    return tuple(dict.fromkeys(names))


_TABLE3 = Experiment(
    name="table3",
    title="Table 3: 784 pixels from 50 chosen ones, test loss of a pixel",
    whole=Choice(("mnist", "fashion-mnist"), (*published.NAMES, plans.REFERENCE), tuple(range(5))),
    quick=Choice(("digits",), ("pi_st", "gumbel_sigmoid"), (0,)),
    plan=plans.selection,
    measured=plans.LOSSES,
    measure=plans.losses,
    table=loss_table.table,
    draw=loss_table.draw,
    reported=published.TABLE3,
    unknown=published.OPEN_TABLE3,
    searchable=True,
    selected_in="table3",
    also=("imle", "score_function", "st_topk"),
)
_TABLE4 = Experiment(
    name="table4",
    title="Table 4: VAEs of ten vectors with k = 5 of n = 10, test loss",
    whole=Choice(
        ("mnist", "fashion-mnist"), (*published.NAMES,), (0, 1, 2), once=("fashion-mnist",)
    ),
    quick=Choice(("digits",), ("pi_st", "gumbel_sigmoid"), (0,)),
    plan=plans.vaes,
    measured=vae_curves.MEASURED,
    measure=vae_curves.measured,
    table=vae_curves.table,
    draw=vae_curves.draw,
    reported=published.TABLE4,
    unknown=published.OPEN_TABLE4,
    searchable=True,
    selected_in="table4",
)
_ROWS = (
    _TABLE3,
    replace(
        _TABLE3,
        name="table3-classes",
        title="Table 3 read as classes: test loss of a classifier with k = 50 of 784 pixels",
        unknown=published.OPEN_TABLE3_CLASSES,
        selected_in="table3-classes",
    ),
    Experiment(
        name="figure5",
        title="Figure 5: learning k, MNIST with a penalty of 0.01 a pixel",
        whole=Choice(("mnist",), (figure5.FIXED, figure5.LEARNED), (0,)),
        quick=Choice(("digits",), (figure5.FIXED, figure5.LEARNED), (0,)),
        plan=plans.learned_k,
        measured=("k", *plans.LOSSES),
        measure=plans.losses_and_k,
        table=figure5.table,
        draw=figure5.draw,
        varied=("seed", "k", "initial_k"),
        unknown=published.OPEN,
    ),
    Experiment(
        name="ks",
        title="The Kuramoto-Sivashinsky equation, found again by sparse regression",
        whole=Choice((ks.DATASET,), (*published.NAMES, "imle"), tuple(range(5))),
        quick=Choice((ks.DATASET,), ("simple", "gumbel_sigmoid"), (0,)),
        plan=plans.equations,
        measured=ks.MEASURED,
        measure=plans.terms,
        table=ks.table,
        draw=ks.draw,
        unknown=published.OPEN_KS,
    ),
    _TABLE4,
    replace(
        _TABLE4,
        name="table4-mean",
        title="Table 4 again, with the mean of the ten divergences in place of their sum",
        whole=replace(_TABLE4.whole, seeds=(0,), once=()),
    ),
    replace(
        _TABLE4,
        name="table4-large",
        title="Table 4: VAEs of one vector with k = 500 of n = 1000, test loss",
        whole=replace(_TABLE4.whole, seeds=(0,), once=()),
        quick=Choice(("digits",), ("softsub", "simple"), (0,)),
        reported=published.TABLE4_LARGE,
        selected_in="table4-large",
    ),
    Experiment(
        name="dvae",
        title="Figure 4 of the SIMPLE paper: VAEs of twenty vectors of n = 20",
        whole=Choice(("mnist",), dvae.METHODS, (0,)),
        quick=Choice(("digits",), dvae.METHODS, (0,)),
        plan=plans.vaes,
        measured=dvae.MEASURED,
        measure=dvae.measured,
        table=dvae.table,
        draw=dvae.draw,
        unknown=published.OPEN_DVAE,
        searchable=True,
        selected_in="dvae",
    ),
)
EXPERIMENTS = {row.name: row for row in _ROWS}

"""`khot submit`: jobs, one or a group of them, from options or from a file."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import typer

from khot_client.cli import following, wishes
from khot_client.cli.data import uploaded
from khot_client.cli.options import MAKERS, Session, nearest, pairs, spread
from khot_client.cli.output import print_json
from khot_client.cli.wishes import DEFAULT_K, Wishes
from khot_client.client import Client
from khot_client.errors import BadSettings
from khot_client.specs import FeatureSelection, SparseRegression, Spec, Vae

# For completion; the server has the last word.
CHOICES = {
    "dataset": ("digits", "mnist", "fashion-mnist", "synthetic", "kuramoto-sivashinsky"),
    "estimator": (
        "pi_st",
        "pi_st_implicit",
        "pi_st2",
        "simple",
        "imle",
        "score_function",
        "reinmax",
        "st_gumbel_softmax",
        "gumbel_sigmoid",
        "softsub",
        "ncpss",
        "st_topk",
    ),
    "objective": ("classification", "regression", "reconstruction"),
    "missing": ("refuse", "impute"),
    "prior": ("softmax", "softmax_mean", "exact"),
    "noise": ("sum_of_gamma", "gumbel"),
}
_SHORT = ("k", "n")
_SAID: dict[tuple[type, str], str] = {
    (FeatureSelection, "k"): f"How many columns to choose; {DEFAULT_K}, unless there is a penalty.",
    (FeatureSelection, "penalty"): "Learn k: what each column costs, in units of the loss.",
}


@dataclass(frozen=True)
class Submission:
    """What is asked for beside the spec."""

    panel: ClassVar[str] = "Job"

    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress, and the result at the end.")
    ] = False
    validate: Annotated[
        bool, typer.Option("--validate", help="Only say whether the server would take it.")
    ] = False
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="To find it by; may be repeated."),
    ] = None
    priority: Annotated[
        int | None,
        typer.Option(help="Greater goes first among your jobs; -100 to 100.", show_default="0"),
    ] = None
    max_run_time: Annotated[
        str | None,
        typer.Option(metavar="10m", help="For all attempts.", show_default="no limit"),
    ] = None
    seeds: Annotated[
        str | None, typer.Option(metavar="0-4", help="A job for each.", show_default=False)
    ] = None
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="k=5,10", help="A job for each value; may be repeated."),
    ] = None

    def over(self, known: Wishes) -> Wishes:
        """What a file says, with what the options say in place of it."""
        given: dict[str, Any] = {"labels": {**known.labels, **pairs("label", self.label)}}
        if self.priority is not None:
            given["priority"] = self.priority
        if self.max_run_time is not None:
            given["max_run_s"] = wishes.duration(self.max_run_time)
        if self.seeds is not None:
            given["seeds"] = wishes.numbers(self.seeds)
        grid = {
            name.replace("-", "_"): wishes.values(value)
            for name, value in pairs("grid", self.grid).items()
        }
        return replace(known, **given, grid={**known.grid, **grid})


def option_of(cls: type, name: str, hint: Any) -> Any:
    """The option for a field of a spec: its help is the field's in the docstring."""
    told = (
        _SAID.get((cls, name)) or _documented(cls).get(name) or _documented(FeatureSelection)[name]
    )
    if name == "dataset":
        told += " Or a .csv, .npz or .parquet file, which is uploaded first."
    known = CHOICES.get(name, ())
    more: dict[str, Any] = {"autocompletion": lambda: list(known)} if known else {}
    flags = [f"--{name.replace('_', '-')}"]
    if bool in get_args(hint):
        flags = [f"{flags[0]}/--no-{flags[0][2:]}"]
    elif name in _SHORT:
        flags.append(f"-{name}")
    elif lists := [part for part in get_args(hint) if get_args(part)]:
        hint = str | None
        more["metavar"] = "256,128" if int in get_args(lists[0]) else "NAME,NAME"
    default = vars(cls)["dataset"] if name == "dataset" else False
    return Annotated[hint, typer.Option(*flags, help=told, show_default=default, **more)]


def _documented(cls: type) -> dict[str, str]:
    """What the docstring says about each attribute."""
    _, _, listed = (cls.__doc__ or "").partition("Attributes:\n")
    found = re.findall(r"^ {8}(\w+): (.*(?:\n {9,}.*)*)", listed, re.MULTILINE)
    return {name: _sentence(" ".join(text.split())) for name, text in found}


def _sentence(text: str) -> str:
    text = text.replace("`Client.list_operators()`", "`khot operators`")
    return text[0].upper() + text[1:]


MAKERS |= {FeatureSelection: option_of, Vae: option_of, SparseRegression: option_of}


@spread
def feature_selection(spec: FeatureSelection, submission: Submission, session: Session) -> None:
    """Learn which k columns of a table predict its target. Prints the id of the job.

    What is not given is the server's choice.

    Example: khot submit feature-selection --dataset digits -k 10 --watch

    Example: khot submit feature-selection -k 5 --seeds 0-2 --grid tau=0.5,1 --epochs 1
    """
    send(spec, submission.over(Wishes()), submission, session)


@spread
def vae(spec: Vae, submission: Submission, session: Session) -> None:
    """Learn to describe examples by k of n units, several times. Prints the id of the job.

    What is not given is the server's choice.

    Example: khot submit vae --dataset digits --epochs 2 --watch
    """
    send(spec, submission.over(Wishes()), submission, session)


@spread
def sparse_regression(spec: SparseRegression, submission: Submission, session: Session) -> None:
    """Learn which k columns of a table a linear model needs. Prints the id of the job.

    What is not given is the server's choice.

    Example: khot submit sparse-regression -k 3 --no-intercept --watch
    """
    send(spec, submission.over(Wishes()), submission, session)


@spread
def file(
    path: Annotated[
        Path,
        typer.Option("-f", "--file", help="The job; client/README.md shows one."),
    ],
    submission: Submission,
    session: Session,
) -> None:
    """Submit the job of a TOML file; options go before what it says. Prints the id of the job.

    Example: khot submit -f job.toml --watch
    """
    spec, known = wishes.read(path)
    send(spec, submission.over(known), submission, session)


def send(spec: Spec, wanted: Wishes, submission: Submission, session: Session) -> None:
    """Submit a job or a group, and follow it if that is asked for."""
    spec = wishes.with_k(_whole(spec), wanted)
    for name in wanted.grid:
        if name not in vars(spec):
            raise nearest("grid: fields", name, vars(spec))
    with session.connect() as client:
        spec = _with_data(client, spec, quiet=session.as_json)
        if submission.validate:
            _validate(client, spec, wanted, session)
        elif several := wanted.spread():
            group = client.submit_group(spec, **several, **wanted.options())
            following.begun(session, group.id, watch=submission.watch)
            if submission.watch:
                following.group(session, group)
        else:
            job = client.submit(spec, **wanted.options())
            following.begun(session, job.id, watch=submission.watch)
            if submission.watch:
                following.job(session, job)


def _whole(spec: Spec) -> Spec:
    """The spec with lists in place of the words that stand for them in an option."""
    lists: dict[str, Any] = {}
    for field in fields(spec):
        given = getattr(spec, field.name)
        if "tuple" not in str(field.type) or not isinstance(given, str):
            continue
        parts = [part.strip() for part in given.split(",")]
        if "int" in str(field.type):
            if not all(part.isdecimal() for part in parts):
                must = "must be whole numbers with commas between, such as 256,128"
                raise BadSettings(f"{field.name}: {must}; got {given!r}")
            lists[field.name] = tuple(map(int, parts))
        else:
            lists[field.name] = tuple(parts)
    return replace(spec, **lists)


def _with_data(client: Client, spec: Spec, *, quiet: bool) -> Spec:
    """The spec with the id of its table, once that is on the server."""
    path = wishes.as_path(spec.dataset)
    return spec if path is None else replace(spec, dataset=uploaded(client, path, quiet=quiet).id)


def _validate(client: Client, spec: Spec, wanted: Wishes, session: Session) -> None:
    if wanted.spread():
        must = "must be of one job, without --seeds, --grid and [group]"
        raise BadSettings(f"validate: {must}; got a group")
    status = client.validate(spec, **wanted.options())
    if session.as_json:
        print_json(status)
    else:
        typer.echo(f"the server would take it: {status.spec!r}")

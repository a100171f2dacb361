"""`khot sample`, `khot relax` and `khot operators`: the serving side from a shell.

Output is plain numbers, one row a line, so that it can be piped on.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from khot_client.cli.options import Session, nearest, spread
from khot_client.cli.output import print_json, print_table, words
from khot_client.errors import InvalidRequest
from khot_client.values import DESIGN, RELAXATION

KINDS = ("relaxation", "design", "estimator")
Scores = Annotated[
    list[float] | None,
    typer.Argument(
        help="The scores of one row, after --; without them, rows from standard input.",
        show_default=False,
    ),
]
N = Annotated[
    int | None,
    typer.Option("--n", min=1, help="Instead of scores: n equal ones.", show_default=False),
]
Tau = Annotated[float, typer.Option(help="Temperature above 0.")]
Operator = Annotated[str, typer.Option(help="See `khot operators`.")]


@spread
def sample(
    k: Annotated[int, typer.Option("-k", "--k", help="How many to choose.")],
    session: Session,
    scores: Scores = None,
    n: N = None,
    tau: Tau = 1.0,
    operator: Operator = DESIGN,
    num_samples: Annotated[
        int | None, typer.Option(min=1, help="Draws of each row.", show_default="1")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="For the same masks again; else one is drawn.", show_default=False),
    ] = None,
) -> None:
    """Draw hard k-hot masks: one row a line, k ones in each.

    Example: khot sample -k 3 --n 10

    Example: khot sample -k 2 --seed 7 -- 2.0 1.0 0.5 -1.0
    """
    x = _rows(scores, n)
    with session.connect() as client:
        drawn = client.sample(x, k, tau=tau, operator=operator, seed=seed, num_samples=num_samples)
    if session.as_json:
        print_json({"z": _whole(drawn.z), "seed": drawn.seed})
        return
    _print(_whole(drawn.z))
    if seed is None:  # beside the masks, not among them
        typer.echo(f"seed {drawn.seed}", err=True)


@spread
def relax(
    k: Annotated[float, typer.Option("-k", "--k", help="How many to choose; may be fractional.")],
    session: Session,
    scores: Scores = None,
    n: N = None,
    tau: Tau = 1.0,
    operator: Operator = RELAXATION,
) -> None:
    """Show soft k-hot vectors: one row a line, summing to k.

    Example: khot relax -k 2 --tau 0.5 -- 2.0 1.0 0.0 -1.0
    """
    x = _rows(scores, n)
    with session.connect() as client:
        soft = client.relax(x, k, tau=tau, operator=operator)
    if session.as_json:
        print_json({"p": soft.p})
    else:
        _print(soft.p)


@spread
def operators(
    session: Session,
    kind: Annotated[
        str | None,
        typer.Option(
            help="relaxation, design or estimator.",
            show_default="all",
            autocompletion=lambda: [*KINDS],
        ),
    ] = None,
) -> None:
    """List the operators of the server, with what each promises.

    Example: khot operators --kind design
    """
    if kind is not None and kind not in KINDS:
        raise nearest("kind:", kind, KINDS)
    with session.connect() as client:
        rows = [row for row in client.list_operators() if kind in (None, row.kind)]
    if session.as_json:
        print_json(rows)
        return
    header = ("operator", "kind", "what it returns", "promises")
    print_table(header, [(r.name, r.kind, r.summary, _promises(r.properties)) for r in rows])


def _promises(properties: Mapping[str, str]) -> str:
    """What is true of an operator, then what has a value; what is not true goes unsaid."""
    kept = {name: value for name, value in properties.items() if value not in ("", "false")}
    true = [name for name, value in kept.items() if value == "true"]
    rest = {name: value for name, value in kept.items() if name not in true}
    return ", ".join([*true, *([words(rest)] if rest else [])])


def _rows(scores: list[float] | None, n: int | None) -> NDArray[np.float64]:
    """The scores, from the one place that has them."""
    if n is not None and scores:
        raise InvalidRequest("scores: must come from --n or from arguments; got both")
    if n is not None:
        return np.zeros(n)
    if scores:
        return np.array(scores)
    given = () if sys.stdin is None or sys.stdin.isatty() else sys.stdin
    try:
        rows = np.array([line.split() for line in given if line.strip()], np.float64)
    except ValueError:  # as for what is no text
        raise InvalidRequest(
            "scores: must be lines of equally many numbers; got others on standard input"
        ) from None
    if not len(rows):
        raise InvalidRequest(
            "scores: must be given as --n 10, as arguments after --, or on standard input; got none"
        )
    return rows


def _whole(drawn: NDArray[Any]) -> NDArray[Any]:
    """Masks as 0 and 1; the relaxed draws of an estimator as they are."""
    return drawn.astype(np.int64) if drawn.dtype == bool else drawn


def _print(rows: NDArray[Any]) -> None:
    form = "d" if rows.dtype.kind == "i" else ".6f"
    for row in rows.reshape(-1, rows.shape[-1]):
        typer.echo(" ".join(format(value, form) for value in row.tolist()))

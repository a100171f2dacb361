"""`khot sample`, `khot relax` and `khot operators`: the serving side from a shell.

Output is plain numbers, one row a line, so that it can be piped on.
"""

import sys
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from khot_client.cli.options import Address, Ca, Tls, Token, connect
from khot_client.errors import InvalidRequest
from khot_client.values import DESIGN, RELAXATION

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


def sample(
    k: Annotated[int, typer.Option("-k", help="How many to choose.")],
    scores: Scores = None,
    n: N = None,
    tau: Tau = 1.0,
    operator: Operator = DESIGN,
    seed: Annotated[
        int | None,
        typer.Option(help="For the same masks again; else one is drawn.", show_default=False),
    ] = None,
    address: Address = None,
    token: Token = None,
    tls: Tls = False,
    ca: Ca = None,
) -> None:
    """Draw hard k-hot masks: one row a line, k ones in each.

    Example: khot sample -k 3 --n 10

    Example: khot sample -k 2 --seed 7 -- 2.0 1.0 0.5 -1.0
    """
    x = _rows(scores, n)
    with connect(address, token, tls, ca) as client:
        drawn = client.sample(x, k, tau=tau, operator=operator, seed=seed)
    _print(drawn.z.astype(np.int64), "d")
    if seed is None:  # beside the masks, not among them
        typer.echo(f"seed {drawn.seed}", err=True)


def relax(
    k: Annotated[float, typer.Option("-k", help="How many to choose; may be fractional.")],
    scores: Scores = None,
    n: N = None,
    tau: Tau = 1.0,
    operator: Operator = RELAXATION,
    address: Address = None,
    token: Token = None,
    tls: Tls = False,
    ca: Ca = None,
) -> None:
    """Show soft k-hot vectors: one row a line, summing to k.

    Example: khot relax -k 2 --tau 0.5 -- 2.0 1.0 0.0 -1.0
    """
    x = _rows(scores, n)
    with connect(address, token, tls, ca) as client:
        soft = client.relax(x, k, tau=tau, operator=operator)
    _print(soft.p, ".6f")


def operators(
    address: Address = None, token: Token = None, tls: Tls = False, ca: Ca = None
) -> None:
    """List the operators of the server, with what each promises.

    Example: khot operators
    """
    with connect(address, token, tls, ca) as client:
        rows = client.operators()
    table = Table("operator", "kind", "what it returns", "promises", show_lines=True)
    for row in rows:
        promises = (f"{name}: {value}" for name, value in sorted(row.properties.items()) if value)
        table.add_row(row.name, row.kind, row.summary, "\n".join(promises))
    Console().print(table)


def _rows(scores: list[float] | None, n: int | None) -> NDArray[np.float64]:
    """The scores, from the one place that has them."""
    if n is not None and scores:
        raise InvalidRequest("scores: must come from --n or from arguments; got both")
    if n is not None:
        return np.zeros(n)
    if scores:
        return np.array(scores)
    if sys.stdin.isatty():
        raise InvalidRequest(
            "scores: must be given as --n 10, as arguments after --, or on standard input; got none"
        )
    lines = [line.split() for line in sys.stdin if line.strip()]
    try:
        return np.array(lines, np.float64)
    except ValueError:
        raise InvalidRequest(
            "scores: must be lines of equally many numbers; got others on standard input"
        ) from None


def _print(rows: NDArray[np.generic], form: str) -> None:
    for row in np.atleast_2d(rows):
        typer.echo(" ".join(format(value, form) for value in row.tolist()))

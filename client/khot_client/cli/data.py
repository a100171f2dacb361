"""`khot data`: tables on the server."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from khot_client.cli.options import Session, spread
from khot_client.cli.output import moment, print_facts, print_json, print_table, size, terminal
from khot_client.client import Client
from khot_client.data_values import Column, Dataset
from khot_client.errors import BadSettings

DatasetId = Annotated[str, typer.Argument(help="See `khot data list`.", show_default=False)]


@spread
def upload(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .csv, .npz or .parquet.", show_default=False)
    ],
    session: Session,
    name: Annotated[
        str | None, typer.Option(help="What to call it.", show_default="the file's name")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="npz, csv or parquet.", show_default="by the file's name"),
    ] = None,
) -> None:
    """Send a table to the server, for any number of jobs. Prints its id.

    An upload that broke off goes on where it was when the command is run again.

    Example: khot data upload table.csv --name measurements
    """
    with session.connect() as client:
        made = uploaded(client, path, name, form, quiet=session.as_json)
    if session.as_json:
        print_json(made)
    else:
        typer.echo(made.id)


def uploaded(
    client: Client,
    path: Path,
    name: str | None = None,
    form: str | None = None,
    *,
    quiet: bool = False,
) -> Dataset:
    """The data set that the server made of a file, with a bar while it is sent."""
    from khot_client.cli.progress import Transfer

    with Transfer(terminal(), quiet=quiet) as bar:

        def told(done: int, total: int) -> None:
            bar.told(path.name, done, total)

        try:
            return client.upload(path.expanduser(), name=name, format=form, progress=told)
        except KeyboardInterrupt:
            message = "stopped by Ctrl-C. Run it again, and the upload goes on where it was"
            raise KeyboardInterrupt(message) from None


@spread
def listing(session: Session) -> None:
    """List your data sets, the latest first, then those that the server brings.

    Example: khot data list
    """
    with session.connect() as client:
        found = list(client.datasets())
    if session.as_json:
        print_json(found)
        return
    header = ("data set", "name", "rows", "columns", "target", "size", "uploaded")
    rows = [
        (d.id, d.name, d.rows, d.column_count, d.target, _size(d), moment(d.create_time))
        for d in found
    ]
    print_table(header, rows)


def _size(dataset: Dataset) -> str:
    return size(dataset.size_bytes) if dataset.size_bytes else ""


@spread
def show(dataset_id: DatasetId, session: Session) -> None:
    """Show a data set and its columns.

    Example: khot data show digits
    """
    with session.connect() as client:
        found = client.dataset(dataset_id)
    if session.as_json:
        print_json(found)
        return
    print_facts(
        {
            "data set": found.id,
            "name": found.name,
            "rows": found.rows,
            "columns": found.column_count,
            "pictures": " x ".join(map(str, found.example_shape)),
            "target": found.target,
            "size": _size(found),
            "uploaded": moment(found.create_time),
        }
    )
    typer.echo()
    header = ("column", "type", "missing", "distinct", "range", "mean")
    print_table(header, [_row(column) for column in found.columns])


def _row(column: Column) -> tuple[object, ...]:
    numeric = column.type in ("float", "integer")
    distinct = "more than 1000" if column.distinct > 1000 else column.distinct
    between = f"{column.min:.4g} to {column.max:.4g}" if numeric else ", ".join(column.classes[:5])
    return (
        column.name,
        column.type,
        column.missing,
        distinct,
        between,
        column.mean if numeric else None,
    )


@spread
def remove(
    dataset_id: DatasetId,
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a data set from the server.

    Example: khot data rm 9d5c21e0b7f84a33 --yes
    """
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadSettings("rm: must be told --yes where nobody can be asked; got neither")
        if not typer.confirm(f"Remove {dataset_id} for good?"):
            return
    with session.connect() as client:
        client.delete_dataset(dataset_id)
    if session.as_json:
        print_json({"removed": dataset_id})
    else:
        typer.echo(f"{dataset_id} removed")

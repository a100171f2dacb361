"""The options that all commands share which call a server."""

from pathlib import Path
from typing import Annotated

import typer

from khot_client.client import Client

Address = Annotated[
    str | None,
    typer.Option(
        envvar="KHOT_ADDRESS",
        metavar="HOST:PORT",
        help="Where the server is.",
        show_default="127.0.0.1:50551",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="KHOT_TOKEN",
        help="Bearer token. Better set in the variable: arguments can be seen by others.",
        show_default=False,
    ),
]
Tls = Annotated[bool, typer.Option("--tls", help="Use TLS, with the system's authorities.")]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="Use TLS, with the authorities of this PEM file.", show_default=False
    ),
]


def connect(address: str | None, token: str | None, tls: bool, ca: Path | None) -> Client:
    """The client that the options ask for."""
    return Client(address, token=token, tls=ca or tls)

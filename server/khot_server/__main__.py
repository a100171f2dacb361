"""`khot-server`, and `python -m khot_server`."""

import asyncio
import sys
from typing import Annotated

import typer

from khot_server.api.app import serve


def start(
    address: Annotated[
        str, typer.Option(help="Where to listen, host:port; port 0 lets the system choose.")
    ] = "127.0.0.1:50551",
) -> None:
    """Run the khot service on this machine until SIGTERM or Ctrl-C, then drain and stop."""
    try:
        asyncio.run(serve(address))
    except OSError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None


def main() -> None:
    """Entry point of the `khot-server` command."""
    typer.run(start)


if __name__ == "__main__":
    main()

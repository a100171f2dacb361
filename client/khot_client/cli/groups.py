"""`khot group`: jobs that were submitted together."""

from typing import Annotated

import typer

from khot_client.cli import following
from khot_client.cli.options import Session, spread

GroupId = Annotated[
    str,
    typer.Argument(help="As `khot submit` prints it for --seeds or --grid.", show_default=False),
]


@spread
def show(group_id: GroupId, session: Session) -> None:
    """Show what the jobs of a group have reached, a row for each combination of the grid.

    Example: khot group show 0b8e55a1d0f24b6c
    """
    with session.connect() as client:
        following.show_group(session, client.group(group_id).status())


@spread
def watch(group_id: GroupId, session: Session) -> None:
    """Watch a group until all its jobs have ended. Ctrl-C leaves them running.

    Example: khot group watch 0b8e55a1d0f24b6c
    """
    with session.connect() as client:
        following.group(session, client.group(group_id))


@spread
def cancel(group_id: GroupId, session: Session) -> None:
    """Ask all jobs of a group to end that have not.

    Example: khot group cancel 0b8e55a1d0f24b6c
    """
    with session.connect() as client:
        following.show_group(session, client.group(group_id).cancel())

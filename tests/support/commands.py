"""The `khot` command in this process, and all its commands."""

import re
from collections.abc import Iterator

import typer.main
from typer.testing import CliRunner

from khot_client.cli import app

Answer = tuple[int, str, str]


def run(*arguments: str, stdin: str | None = None, **environment: str) -> Answer:
    """The exit code, stdout and stderr of a command."""
    result = CliRunner().invoke(app, arguments, input=stdin, env=environment, prog_name="khot")
    return result.exit_code, result.stdout, result.stderr


def commands() -> Iterator[tuple[str, list[str], set[str]]]:
    """Every command, such as `job show`, with the examples of its help and its options."""
    yield from _commands("", typer.main.get_command(app))


def _commands(name: str, command) -> Iterator[tuple[str, list[str], set[str]]]:
    for sub, below in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {sub}".strip(), below)
    if not hasattr(command, "commands"):
        examples = re.findall(r"Example: (khot .*)", command.callback.__doc__)
        yield name, examples, {word for option in command.params for word in option.opts}

"""Options that commands share: a command takes frozen data, its users give an option a field."""

import functools
import inspect
import shlex
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from khot_client.cli.faults import DEBUG
from khot_client.client import TIMEOUT_S, Client
from khot_client.errors import BadSettings


def _debug(context: typer.Context, wanted: bool) -> bool:
    context.meta[DEBUG] = wanted
    return wanted


@dataclass(frozen=True)
class Session:
    """What every command takes that calls a server."""

    panel: ClassVar[str] = "Server and output"

    address: Annotated[
        str | None,
        typer.Option(
            envvar="KHOT_ADDRESS",
            metavar="HOST:PORT",
            help="Where the server is.",
            show_default="127.0.0.1:50551",
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            envvar="KHOT_TOKEN",
            help="Better set in the variable: arguments can be seen by others.",
            show_default=False,
        ),
    ] = None
    tls: Annotated[bool, typer.Option("--tls", help="With the system's authorities.")] = False
    ca: Annotated[
        Path | None,
        typer.Option(help="TLS with the authorities of this PEM file.", show_default=False),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(
            envvar="KHOT_PROFILE", help="A server of the file of profiles.", show_default=False
        ),
    ] = None
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Of each call.")] = TIMEOUT_S
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_debug)
    ] = False

    def connect(self) -> Client:
        """The client that the options ask for."""
        return Client(
            self.address,
            token=self.token,
            tls=self.ca or self.tls or None,
            profile=self.profile,
            timeout_s=self.timeout,
        )

    def again(self, command: str) -> str:
        """The same server in another command, without the token."""
        given = {"address": self.address, "profile": self.profile, "ca": self.ca}
        said = [f" --{name} {shlex.quote(str(value))}" for name, value in given.items() if value]
        return f"khot {command}{''.join(said)}{' --tls' if self.tls else ''}"


Option = Callable[[type, str, Any], Any]
# How the options of a class are made that knows nothing of them: by class, name and type.
MAKERS: dict[type, Option] = {}


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every field of each dataclass among its parameters."""
    parameters: list[inspect.Parameter] = []
    made: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            made[name] = kind
            parameters += _options(kind)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        values = {
            name: cls(**{field.name: given.pop(field.name) for field in fields(cls)})
            for name, cls in made.items()
        }
        command(**given, **values)

    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _options(cls: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(cls, include_extras=True)
    make = MAKERS.get(cls, _as_declared)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if field.default is MISSING else field.default,
            annotation=make(cls, field.name, hints[field.name]),
        )
        for field in fields(cls)
    ]


def _as_declared(cls: type, name: str, hint: Any) -> Any:
    del name
    (option,) = hint.__metadata__
    option.rich_help_panel = vars(cls).get("panel")
    return hint


def pairs(who: str, given: list[str] | None) -> dict[str, str]:
    """Words of the form name=value.

    Raises:
        BadSettings: one has another form, or the name of one before.
    """
    found: dict[str, str] = {}
    for word in given or ():
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise BadSettings(f"{who}: must be name=value; got {word!r}")
        if name in found:
            raise BadSettings(f"{who}: must have each name once; got {name!r} again")
        found[name] = value
    return found


def nearest(who: str, got: str, known: Collection[str]) -> BadSettings:
    """What to raise for an unknown name."""
    from difflib import get_close_matches

    close = get_close_matches(got, known, n=1, cutoff=0.5)
    meant = f". Is {close[0]!r} meant?" if close else ""
    return BadSettings(f"{who} must be among {', '.join(known)}; got {got!r}{meant}")

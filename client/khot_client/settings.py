"""Where the service is and how to reach it: from arguments, the environment, or a file.

    argument > environment > profile of the file > default

    argument    variable       key of a profile
    address     KHOT_ADDRESS   address
    token       KHOT_TOKEN     token, or token_file
    tls         KHOT_TLS       tls, or ca
    cert, key                  cert, key
    profile     KHOT_PROFILE   default_profile, beside the profiles

The file is `$KHOT_CLIENT_CONFIG`, or `khot/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`:

    default_profile = "lab"

    [profiles.lab]
    address = "khot.example.org:50551"
    token_file = "lab.token"    # beside this file; keep both readable by yourself alone
    ca = "lab.pem"

A profile is one server. Whoever gives an address in another way uses no profile, unless one
is named too: the token of one server must not go to another by mistake.
"""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from khot_client.errors import BadSettings

DEFAULT_ADDRESS = "127.0.0.1:50551"
CONFIG_VARIABLE = "KHOT_CLIENT_CONFIG"  # KHOT_CONFIG is the server's, and both may be set
_PATHS = ("token_file", "ca", "cert", "key")
_KINDS: dict[str, type] = {"address": str, "token": str, "tls": bool, **dict.fromkeys(_PATHS, str)}
_BEGIN = b"-----BEGIN "
_SWITCH = {"1": True, "true": True, "0": False, "false": False, "": False}

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Settings:
    """What a connection is made with. No repr shows the secrets.

    Attributes:
        address: host:port.
        token: printable ASCII, or empty.
        tls: whether to use it.
        authorities: certificates to trust, PEM; None: those of the system.
        certificate: of this client, PEM, with its key; None: none.
        key: of the certificate.
    """

    address: str = DEFAULT_ADDRESS
    token: str = field(default="", repr=False)
    tls: bool = False
    authorities: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine."""
        return is_loopback(self.address)


def resolve(
    address: str | None = None,
    *,
    token: str | None = None,
    tls: bool | PathLike | None = None,
    cert: PathLike | None = None,
    key: PathLike | None = None,
    profile: str | None = None,
) -> Settings:
    """Return the settings that the arguments, the environment and the file make together.

    Raises:
        BadSettings: they cannot be used, or not together.
    """
    environment = os.environ
    named = profile or environment.get("KHOT_PROFILE")
    elsewhere = address or environment.get("KHOT_ADDRESS")
    filed = read_profile(named) if named or not elsewhere else {}
    if tls is None:
        tls = _tls_variable(environment.get("KHOT_TLS"))
    if tls is None:
        tls = filed.get("ca") or filed.get("tls", False)
    settings = Settings(
        address=elsewhere or filed.get("address") or DEFAULT_ADDRESS,
        token=_token(token or environment.get("KHOT_TOKEN") or filed.get("token", "")),
        tls=bool(tls),
        authorities=None
        if isinstance(tls, bool)
        else _pem("tls", "True or the path of a PEM file", tls),
        certificate=_optional("cert", cert or filed.get("cert")),
        key=_optional("key", key or filed.get("key")),
    )
    _check(settings)
    return settings


def is_loopback(address: str) -> bool:
    """Whether the host of `host:port` is this machine.

    Raises:
        BadSettings: the address has another form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise BadSettings(
            f"Client: address must be host:port, such as {DEFAULT_ADDRESS}; got {address!r}"
        )
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def config_path() -> Path:
    """Where the file with the profiles is, if there is one."""
    if given := os.environ.get(CONFIG_VARIABLE):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "khot" / "config.toml"


def read_profile(name: str | None) -> dict[str, Any]:
    """Return the profile of this name, or the default one; paths in it begin at the file.

    Raises:
        BadSettings: the file is not what it must be, or has no such profile.
    """
    path = config_path()
    content = _config(path, wanted=bool(name or os.environ.get(CONFIG_VARIABLE)))
    profiles = content.get("profiles", {})
    name = name or content.get("default_profile")
    if name is None:
        return {}
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise BadSettings(f"{path}: profile must be one of: {known}; got {name!r}")
    profile = dict(profiles[name])
    for key in profile.keys() & {*_PATHS}:
        profile[key] = path.parent / Path(profile[key]).expanduser()
    if "token_file" in profile:
        must = "the path of a file with the token alone"
        text = _read("token_file", must, profile.pop("token_file")).decode(errors="replace")
        profile["token"] = text.strip()
    return profile


def _config(path: Path, *, wanted: bool) -> dict[str, Any]:
    import tomllib

    try:
        content = tomllib.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        if not wanted:
            return {}
        raise BadSettings(f"{path}: must be a TOML file with profiles; got none") from None
    except OSError as error:
        raise BadSettings(f"{path}: must be readable; got {error.strerror}") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise BadSettings(f"{path}: must be a TOML file; got {_first_line(error)}") from None
    _check_table(f"{path}", content, {"default_profile": str, "profiles": dict})
    for name, profile in content.get("profiles", {}).items():
        if not isinstance(profile, dict):
            raise BadSettings(f"{path}: profiles.{name} must be a table; got something else")
        _check_table(f"{path}: profiles.{name}", profile, _KINDS)
        if {"token", "token_file"} <= profile.keys():
            must = "must have token or token_file"
            raise BadSettings(f"{path}: profiles.{name} {must}; got both")
    return content


def _check_table(who: str, table: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    for key, value in table.items():
        if key not in kinds:
            raise BadSettings(f"{who}: keys must be among {', '.join(kinds)}; got {key!r}")
        if not isinstance(value, kinds[key]):
            # not the value: it may be a secret
            must, got = kinds[key].__name__, type(value).__name__
            raise BadSettings(f"{who}: {key} must be of type {must}; got {got}")


def _check(settings: Settings) -> None:
    loopback = settings.loopback
    if settings.token and not settings.tls and not loopback:
        raise BadSettings(
            "Client: tls must be on where a token leaves this machine, or anyone on the way "
            f"could read it; got address {settings.address!r} without tls"
        )
    if (settings.certificate is None) != (settings.key is None):
        raise BadSettings("Client: cert and key must be given together; got one of them")
    if settings.certificate is not None and not settings.tls:
        raise BadSettings("Client: tls must be on where there is a cert; got it off")


def _token(token: str) -> str:
    if not (token.isascii() and token.isprintable()) or " " in token:
        # gRPC would say so too, and show the token
        raise BadSettings("Client: token must be printable ASCII without spaces; got another")
    return token


def _tls_variable(text: str | None) -> bool | str | None:
    """KHOT_TLS: on, off, or the path of a PEM file."""
    return None if text is None else _SWITCH.get(text.lower(), text)


def _optional(name: str, path: PathLike | None) -> bytes | None:
    return None if path is None else _pem(name, "the path of a PEM file", path)


def _pem(name: str, must: str, path: PathLike) -> bytes:
    content = _read(name, must, path)
    if _BEGIN not in content:  # gRPC would say so in lines of its own, and blame the server
        raise BadSettings(f"Client: {name} must be {must}; got {str(path)!r}, which is none")
    return content


def _read(name: str, must: str, path: PathLike) -> bytes:
    try:
        return Path(os.fspath(path)).read_bytes()
    except OSError as error:
        got = f"{str(path)!r}, {error.strerror}"
        raise BadSettings(f"Client: {name} must be {must}; got {got}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]

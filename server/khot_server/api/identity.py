"""Who calls: bearer tokens from a file, hashed at rest, each with a tenant and scopes.

The file is TOML; `khot-server new-token` prints a token and its entry::

    [[tokens]]
    tenant = "vision"
    scopes = ["sample", "jobs"]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

A token is 256 random bits, so a plain hash of it cannot be turned back; there is
nothing for a salt or a slow hash to protect.
"""

import hashlib
import hmac
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from khot_server.errors import PermissionDenied, Unauthenticated

SCOPES = ("sample", "jobs", "admin")


class BadTokens(Exception):
    """A tokens file that cannot be used."""


@dataclass(frozen=True)
class Identity:
    """A caller: whose jobs and limits, and what may be called."""

    tenant: str
    scopes: frozenset[str]


# Who everybody is where no tokens are required.
LOCAL = Identity("local", frozenset(SCOPES))


class Tokens:
    """The known tokens, by hash."""

    def __init__(self, entries: Mapping[str, Identity]) -> None:
        self._entries = tuple(entries.items())

    @classmethod
    def load(cls, path: Path) -> "Tokens":
        """The tokens of a file.

        Raises:
            BadTokens: it is not TOML, or an entry is not as it must be.
        """
        try:
            rows = tomllib.loads(path.read_text())["tokens"]
            entries = {_hash(row): _identity(row) for row in rows}
        except (KeyError, TypeError, ValueError) as error:
            raise BadTokens(
                f"tokens: {path} must hold [[tokens]] with tenant, scopes of "
                f"{', '.join(SCOPES)}, and sha256 in hex; got {type(error).__name__}: {error}"
            ) from None
        return cls(entries)

    def identify(self, token: str) -> Identity | None:
        """Whose token this is. All entries are compared, in constant time each."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = None
        for known, identity in self._entries:
            if hmac.compare_digest(known, digest):
                found = identity
        return found


def _hash(row: Mapping[str, str]) -> str:
    if len(bytes.fromhex(row["sha256"])) != hashlib.sha256().digest_size:
        raise ValueError("a sha256 of another length")
    return row["sha256"].lower()


def _identity(row: Mapping[str, str]) -> Identity:
    unknown = set(row["scopes"]) - set(SCOPES)
    if unknown or not row["tenant"]:
        raise ValueError(f"an empty tenant, or the scopes {sorted(unknown)}")
    return Identity(row["tenant"], frozenset(row["scopes"]))


def new_token(tenant: str, scopes: Iterable[str]) -> tuple[str, str]:
    """A new token, and its entry for the file."""
    token = "khot_" + secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    return token, f'[[tokens]]\ntenant = "{tenant}"\nscopes = [{listed}]\nsha256 = "{digest}"\n'


def authorize(tokens: Tokens | None, metadata: Iterable[tuple[str, str]], scope: str) -> Identity:
    """The caller of a call that needs `scope`.

    Raises:
        Unauthenticated: no token, or one that is not known.
        PermissionDenied: a token without the scope; `admin` has every scope.
    """
    if tokens is None:
        return LOCAL
    header = next((value for key, value in metadata if key == "authorization"), "")
    kind, _, token = header.partition(" ")
    if kind.lower() != "bearer" or not token:
        got = "none" if not header else "another kind of authorization"
        raise Unauthenticated(f"authorization: must be a bearer token; got {got}")
    identity = tokens.identify(token.strip())
    if identity is None:
        raise Unauthenticated("authorization: token must be a known one; got an unknown one")
    if not {scope, "admin"} & identity.scopes:
        raise PermissionDenied(
            f"authorization: token must have the scope {scope}; got {sorted(identity.scopes)}"
        )
    return identity

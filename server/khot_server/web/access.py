"""Who asks, and may see what.

Everything about jobs is a tenant's. Where the server has tokens, one is the password of HTTP
Basic authentication, with any user name. Where it has none, only this machine may ask, and
only by a name of its own: a page from elsewhere could have made its own name point here. An
anonymous server hears from wherever it can be reached, as a container hears from its host, and
still only by such a name.
"""

import base64
import binascii
from http import HTTPStatus

from khot_server.api.identity import LOCAL, Identity, Tokens
from khot_server.config import is_loopback
from khot_server.web.messages import Refused, Request

CHALLENGE = 'Basic realm="khot: a token is the password", charset="UTF-8"'


def identify(tokens: Tokens | None, request: Request, anonymous: bool = False) -> Identity:
    """Return who asks.

    Raises:
        Refused: nobody who may.
    """
    if tokens is None:
        near = anonymous or is_loopback(f"{request.peer}:0")
        if near and _is_our_name(request.headers.get("Host", "")):
            return LOCAL
        must = "status page: must be asked for from this machine, as localhost or its address, "
        must += "where the server has no tokens"
        raise Refused(HTTPStatus.FORBIDDEN, f"{must}; got a request from elsewhere")
    password = _password(request.headers.get("Authorization", ""))
    known = tokens.identify(password) if password else None
    if known is None:
        must = "password: must be a token of the server, with any user name"
        got = "an unknown one" if password else "none"
        status = HTTPStatus.UNAUTHORIZED
        raise Refused(status, f"{must}; got {got}", WWW_Authenticate=CHALLENGE)
    return known


def sees_jobs(identity: Identity) -> bool:
    """Whether the caller may read jobs over gRPC, and so here."""
    return not identity.scopes.isdisjoint({"jobs", "admin"})


def _is_our_name(host: str) -> bool:
    """Whether a Host header, with a port or without, is a name of loopback."""
    has_port = ":" in host.rpartition("]")[2]
    return is_loopback(host if has_port else f"{host}:80")


def _password(authorization: str) -> str | None:
    """Return the password of Basic authentication; None if there is none to be read."""
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None

"""A request and its reply, as data."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, parse_headers
from typing import BinaryIO

END_OF_HEAD = b"\r\n\r\n"


class Refused(Exception):
    """A request that is not answered as it wishes; the message says why.

    Attributes:
        status: of the reply.
        headers: that the reply has besides.
    """

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        path: as it was sent. No path of ours needs an escape, so none is undone.
        query: what follows the question mark.
        headers: by name, in any case of letters.
        peer: the address that it came from.
    """

    method: str
    path: str
    query: str
    headers: HTTPMessage
    peer: str


@dataclass(frozen=True)
class Reply:
    """What is answered.

    Attributes:
        body: the bytes, or an open file, of which the reply is the whole.
        size: of the body.
    """

    status: HTTPStatus
    body: bytes | BinaryIO
    size: int
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> bytes:
        """Return all that goes before the body."""
        headers = {
            **self.headers,
            "Date": formatdate(usegmt=True),
            "Content-Length": str(self.size),
            "Connection": "close",
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join(lines).encode("latin-1") + END_OF_HEAD


def parse(head: bytes, peer: str) -> Request:
    """Return the request that begins with `head`.

    Raises:
        Refused: it is none.
    """
    first, _, rest = head.partition(b"\r\n")
    match first.decode("latin-1").split(" "):
        case [method, target, "HTTP/1.0" | "HTTP/1.1"] if method and target.startswith("/"):
            path, _, query = target.partition("?")
        case _:
            must = "request: must begin with a method, a path and HTTP/1.1"
            raise Refused(HTTPStatus.BAD_REQUEST, f"{must}; got another line")
    try:
        headers = parse_headers(io.BytesIO(rest))
    except HTTPException as error:
        must = "request: must have at most 100 headers"
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise Refused(status, f"{must}; got more") from error
    return Request(method, path, query, headers, peer)

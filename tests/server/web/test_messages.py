"""A request and its reply, as data."""

from http import HTTPStatus

import pytest

from khot_server.web.messages import Refused, Reply, parse


def test_a_request_is_read():
    request = parse(b"GET /a/b?still HTTP/1.1\r\nhost: me\r\nACCEPT: x\r\n\r\n", "::1")
    assert (request.method, request.path, request.query) == ("GET", "/a/b", "still")
    assert (request.headers["Host"], request.headers.get("accept")) == ("me", "x")
    assert request.headers.get("Authorization") is None
    assert request.peer == "::1"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET /",
        b"GET / HTTP/2.0",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 more",
        b"GET http://elsewhere/ HTTP/1.1",
        b" / HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_request_is_refused(line):
    with pytest.raises(Refused, match="request: must begin with a method.*; got") as caught:
        parse(line + b"\r\n\r\n", "::1")
    assert caught.value.status == HTTPStatus.BAD_REQUEST


def test_more_headers_than_anybody_needs_are_refused():
    many = b"".join(b"x-%d: 1\r\n" % number for number in range(101))
    with pytest.raises(Refused, match="at most 100 headers") as caught:
        parse(b"GET / HTTP/1.1\r\n" + many + b"\r\n", "::1")
    assert caught.value.status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_a_reply_says_its_size_and_that_it_is_the_last():
    head = Reply(HTTPStatus.NOT_FOUND, b"1234", 4, {"X-Mine": "yes"}).head()
    first, *lines = head.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first == "HTTP/1.1 404 Not Found"
    assert {"X-Mine: yes", "Content-Length: 4", "Connection: close"} <= set(lines)

"""Connections: slow, rude and many."""

import contextlib
import io
import socket
import threading
from http import HTTPStatus

import pytest
from processes import wait_until

from khot_server.web.messages import Reply
from khot_server.web.server import PIECE_BYTES, WORKERS, Bounds, WebServer

QUICK = Bounds(connections=4, head_bytes=1024, head_s=0.5, answer_s=0.5, linger_s=0.2)
PATIENT = Bounds(connections=4, head_s=60, answer_s=60, linger_s=60)


class Echo:
    """Answers with the path, a file for `/file`, and nothing to `/wait` until it may.

    The answer to `/flood` is longer than what the kernel takes for a client.
    """

    def __init__(self) -> None:
        self.may_go, self.waiting = threading.Event(), threading.Semaphore(0)
        self.file = io.BytesIO(bytes(3 * PIECE_BYTES + 1))

    def answer(self, request):
        if request.path == "/wait":
            self.waiting.release()
            self.may_go.wait()
        if request.path == "/raise":
            raise ZeroDivisionError
        if request.path == "/file":
            return Reply(HTTPStatus.OK, self.file, len(self.file.getvalue()))
        body = bytes(1 << 24) if request.path == "/flood" else request.path.encode()
        return Reply(HTTPStatus.OK, body, len(body))

    def refuse(self, why):
        body = str(why).encode()
        return Reply(why.status, body, len(body))


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def start(echo):
    """Serve, within these bounds; return what connects."""
    with contextlib.ExitStack() as stack:

        def begin(bounds):
            server = WebServer(echo, bounds)
            address = ("127.0.0.1", server.start("127.0.0.1:0"))
            stack.callback(server.close)
            stack.callback(echo.may_go.set)

            def connect(sent=b""):
                client = stack.enter_context(socket.create_connection(address, timeout=30))
                client.sendall(sent)
                return client

            return connect

        yield begin


def received(client) -> bytes:
    """All that comes until the server hangs up."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 16):
            found += piece
    return found


def test_a_request_is_answered_and_the_connection_ended(start):
    head, _, body = received(start(QUICK)(b"GET /a HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b"/a"


def test_head_has_no_body(start, echo):
    connect = start(QUICK)
    for path in (b"/a", b"/file"):
        head, _, body = received(connect(b"HEAD %s HTTP/1.1\r\n\r\n" % path)).partition(b"\r\n\r\n")
        assert b"Content-Length: 0" not in head and body == b""
    assert echo.file.closed


def test_a_file_is_sent_whole_and_closed(start, echo):
    whole = echo.file.getvalue()
    answer = received(start(QUICK)(b"GET /file HTTP/1.1\r\n\r\n"))
    assert answer.partition(b"\r\n\r\n")[2] == whole
    assert echo.file.closed


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: slow\r\n"])
def test_a_request_that_does_not_end_is_given_up(start, sent):
    assert received(start(QUICK)(sent)) == b""


def test_a_byte_now_and_then_gains_no_time(start):
    client, tick = start(QUICK)(), threading.Event()

    def drip():
        for _ in range(100):  # each within any time-out for a single read
            client.sendall(b"x")
            tick.wait(0.1)

    with pytest.raises(OSError, match="reset|Broken pipe"):
        drip()


def test_a_head_without_end_is_refused(start):
    client = start(PATIENT)(b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * PATIENT.head_bytes)
    assert received_head(client).startswith(b"HTTP/1.1 431 Request Header Fields Too Large")


def received_head(client) -> bytes:
    found = b""
    while b"\r\n\r\n" not in found:
        found += client.recv(4096)
    return found


def test_what_is_no_request_is_told_so(start):
    assert received(start(QUICK)(b"\x16\x03\x01\r\n\r\n")).startswith(b"HTTP/1.1 400 Bad Request")


def test_a_body_that_nobody_reads_does_not_lose_the_reply(start):
    body = bytes(1 << 20)
    request = b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    client = start(PATIENT)(request + body)
    client.shutdown(socket.SHUT_WR)
    assert received(client).endswith(b"\r\n\r\n/a")


def test_a_client_that_does_not_read_is_given_up(start, echo):
    echo.file = io.BytesIO(bytes(1 << 26))  # more than the kernel takes for it
    client = start(QUICK)()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(b"GET /file HTTP/1.1\r\n\r\n")
    wait_until(lambda: echo.file.closed, "the server to let the file go", 10)


def test_who_keeps_us_waiting_longest_makes_room(start):
    connect = start(PATIENT)
    idle = [connect(b"GET /") for _ in range(PATIENT.connections)]
    assert received_head(connect(b"GET /a HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert received(idle[0]) == b""  # hung up on
    idle[-1].sendall(b"last HTTP/1.1\r\n\r\n")  # and the others were not
    assert received_head(idle[-1]).startswith(b"HTTP/1.1 200")


def test_who_does_not_read_his_reply_makes_room_too(start):
    connect = start(PATIENT)
    deaf = [connect() for _ in range(PATIENT.connections)]
    for client in deaf:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /flood HTTP/1.1\r\n\r\n")
        client.recv(1)
    assert received(connect(b"GET /a HTTP/1.1\r\n\r\n")).endswith(b"/a")


def test_when_all_are_being_answered_the_next_is_turned_away(start, echo):
    connect = start(PATIENT)
    busy = [connect(b"GET /wait HTTP/1.1\r\n\r\n") for _ in range(PATIENT.connections)]
    for _ in range(WORKERS):
        echo.waiting.acquire()
    assert received(connect(b"GET /a HTTP/1.1\r\n\r\n")) == b""
    echo.may_go.set()
    assert all(received_head(client).startswith(b"HTTP/1.1 200") for client in busy)


def test_many_connections_take_few_threads(start):
    connect = start(PATIENT)
    before = threading.active_count()
    for _ in range(100):
        connect(b"GET /")
    for _ in range(20):
        received_head(connect(b"GET /a HTTP/1.1\r\n\r\n"))
    assert threading.active_count() <= before + WORKERS


def test_a_site_that_raises_ends_its_connection_alone(start, capsys):
    connect = start(QUICK)
    assert received(connect(b"GET /raise HTTP/1.1\r\n\r\n")) == b""
    assert "ZeroDivisionError" in "".join(capsys.readouterr())
    assert received(connect(b"GET /a HTTP/1.1\r\n\r\n")).endswith(b"/a")


def test_an_address_that_is_taken_is_an_error(echo):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = WebServer(echo)
        with pytest.raises(OSError, match="in use"):
            server.start(f"127.0.0.1:{taken.getsockname()[1]}")
        server.close()


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
def test_it_listens_by_name_and_on_ipv6(echo, host):
    server = WebServer(echo, QUICK)
    try:
        address = (host.strip("[]"), server.start(f"{host}:0"))
    except OSError as error:
        pytest.skip(f"needs {host}: {error}")
    with contextlib.closing(server), socket.create_connection(address, timeout=10) as client:
        client.sendall(b"GET /a HTTP/1.1\r\n\r\n")
        assert received(client).endswith(b"/a")

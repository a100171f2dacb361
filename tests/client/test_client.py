"""Calls of the client to a real server."""

import datetime
import math
import os
import signal
import socket
import threading

import numpy as np
import pytest

import khot_client
from khot_client import (
    BadSettings,
    Cancelled,
    Client,
    DeadlineExceeded,
    FeatureSelection,
    InvalidRequest,
    KhotError,
    RelaxItem,
    SampleItem,
    TooLarge,
    Unavailable,
)

SCORES = np.array([[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 1.0, 0.0]])


def test_relax_returns_soft_rows_that_sum_to_k(client):
    soft = client.relax(SCORES, [2, 1.5], tau=0.5)
    assert soft.p.shape == SCORES.shape and soft.p.dtype == np.float64
    assert soft.p.sum(-1) == pytest.approx([2, 1.5])
    assert soft.p[0] == pytest.approx([0.9526, 0.7311, 0.2689, 0.0474], abs=1e-4)
    assert soft.batch_rows >= 2 and soft.queue_s >= 0 and soft.compute_s > 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_relax_keeps_the_dtype_of_the_scores(client, dtype):
    assert client.relax(SCORES.astype(dtype), 2).p.dtype == dtype


def test_whole_numbers_are_scores_too(client):
    assert (client.relax([2, 1, 0, -1], 2).p == client.relax([2.0, 1.0, 0.0, -1.0], 2).p).all()


def test_masked_units_are_not_chosen(client):
    assert client.relax([0.0, -np.inf, 0.0], 1).p.tolist() == [0.5, 0.0, 0.5]


def test_sample_returns_masks_with_k_ones(client):
    drawn = client.sample(np.zeros((50, 17)), 3)
    assert drawn.z.shape == (50, 17) and drawn.z.dtype == np.bool_
    assert set(drawn.z.sum(-1)) == {3}


def test_a_seed_gives_the_same_masks_again(client):
    drawn = client.sample(np.zeros(64), 10)
    assert (client.sample(np.zeros(64), 10, seed=drawn.seed).z == drawn.z).all()
    assert client.sample(np.zeros(64), 10).seed != drawn.seed


def test_a_bad_item_has_its_error_in_its_place(client):
    items = [RelaxItem([1.0, 2.0], 1), RelaxItem([1.0, 2.0], 5), RelaxItem("no", 1)]
    good, bad, unsendable = client.relax_many(items)
    assert good.p.sum() == pytest.approx(1)
    assert isinstance(bad, InvalidRequest) and bad.field.startswith("items[1]")
    assert isinstance(unsendable, InvalidRequest) and unsendable.field == "x"
    masks = client.sample_many([SampleItem([1.0, 2.0], 1, seed=1), SampleItem([1.0], 1, tau=-1)])
    assert masks[0].z.sum() == 1 and isinstance(masks[1], InvalidRequest)
    assert client.relax_many([]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": [1.0, np.nan], "k": 1}, "x must hold finite numbers or -inf"),
        ({"x": [1.0, 2.0], "k": 3}, r"k must be in \[0, n\]"),
        ({"x": [1.0, 2.0], "k": [1, 1]}, "must be one number, or one for each of 1 rows"),
        ({"x": [], "k": 0}, r"must have shape \(n\) or \(rows, n\)"),
        ({"x": [1.0], "k": 1, "operator": "nope"}, "must be one of sigmoid_topk.*; got 'nope'"),
        ({"x": [[1.0], [1.0, 2.0]], "k": 1}, "x: must be an array of numbers; got"),
        ({"x": [1j], "k": 1}, "x: must be float16, float32, float64 .*; got complex128"),
        ({"x": [1.0], "k": "one"}, "k: must be a number, or one a row; got str"),
        ({"x": [1.0], "k": [[1.0]]}, r"k: must be a number, or one a row; got shape \(1, 1\)"),
    ],
)
def test_bad_requests_are_refused_with_what_must_be(client, arguments, message):
    with pytest.raises(InvalidRequest, match=message) as caught:
        client.relax(**arguments)
    assert caught.value.code == "INVALID_ARGUMENT" and caught.value.field
    assert client.relax([0.0, 0.0], 1).p.tolist() == [0.5, 0.5], "and the server goes on"


def test_a_seed_out_of_range_is_refused(client):
    with pytest.raises(InvalidRequest, match=r"seed: must be a whole number in \[0, 2\*\*64\)"):
        client.sample([0.0, 0.0], 1, seed=-1)


def test_operators_are_listed_with_their_promises(client):
    server = client.server()
    assert server.version == khot_client.__version__ and server.devices == ("cpu",)
    assert server.limits["max_message_bytes"] == 64 << 20
    rows = {row.name: row for row in client.list_operators()}
    assert rows["sigmoid_topk"].kind == "relaxation" and rows["sigmoid_topk"].summary
    assert rows["tournament_pivotal"].kind == "design"
    assert rows["tournament_pivotal"].properties["exact"] == "true"


def test_too_large_a_message_is_refused(client):
    with pytest.raises(TooLarge, match="Send fewer rows at a time"):
        client.relax(np.zeros((1, 9 << 20)), 1)


def test_no_server_is_unavailable():
    with Client("127.0.0.1:1") as client, pytest.raises(Unavailable, match="`khot up` starts"):
        client.list_operators()


def test_a_time_out_is_told():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        late = pytest.raises(DeadlineExceeded, match="Allow more time with timeout_s")
        with Client(address, timeout_s=0.2) as client, late:
            client.list_operators()


@pytest.mark.parametrize("limit", [0, -1.0, math.nan, "3"])
def test_a_time_out_that_is_none_is_refused(server, limit):
    refused = "timeout_s must be seconds above 0, or None; got"
    with pytest.raises(BadSettings, match=refused):
        Client(server, timeout_s=limit)
    with Client(server, timeout_s=math.inf) as client:
        with pytest.raises(BadSettings, match=refused):
            client.relax([1.0], 1, timeout_s=limit)
        assert client.relax([1.0], 1, timeout_s=1e300).p == 1, "gRPC would take it for no time"


def test_an_interrupted_call_does_not_keep_the_client_open():
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def interrupt():
            with silent.accept()[0]:  # the call is under way
                os.kill(os.getpid(), signal.SIGINT)
                over.wait(60)  # or its end could come first

        thread = threading.Thread(target=interrupt)
        thread.start()
        stopped = pytest.raises(KeyboardInterrupt)
        with stopped, Client(f"127.0.0.1:{silent.getsockname()[1]}") as client:
            client.list_operators()
        over.set()
        thread.join()


def test_a_closed_client_says_so(server):
    client = Client(server)
    client.close()
    for call in (
        client.list_operators,
        client.job("x").status,
        lambda: list(client.job("x").watch()),
    ):
        with pytest.raises(Cancelled, match="Client: must be open; got one that was closed"):
            call()


def test_address_and_token_come_from_the_environment(monkeypatch):
    assert Client().address == "127.0.0.1:50551"
    monkeypatch.setenv("KHOT_ADDRESS", "127.0.0.1:7")
    assert Client().address == "127.0.0.1:7"
    assert Client("localhost:8").address == "localhost:8"
    monkeypatch.setenv("KHOT_ADDRESS", "example.org:7")
    monkeypatch.setenv("KHOT_TOKEN", "secret")
    with pytest.raises(BadSettings, match="tls must be on"):
        Client()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_token_may_go_over_plain_text_within_this_machine(host):
    Client(f"{host}:7", token="secret").close()


def test_a_token_needs_tls_elsewhere():
    with pytest.raises(BadSettings, match="or anyone on the way could read it") as caught:
        Client("example.org:7", token="secret")
    assert "secret" not in str(caught.value)
    Client("example.org:7", token="secret", tls=True).close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"address": "nonsense"}, "must be host:port, such as 127.0.0.1:50551; got 'nonsense'"),
        ({"address": "host:0"}, "must be host:port"),
        ({"address": ":50551"}, "must be host:port"),
        ({"token": "two words"}, "token must be printable ASCII without spaces; got another"),
        ({"token": "line\nbreak"}, "token must be printable ASCII"),
        ({"tls": "/no/such/file"}, "must be True or the path of a PEM file; got '/no/such/file'"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(BadSettings, match=message):
        Client(**arguments)


def test_reprs_show_shapes_not_contents(client):
    shown = repr(client.relax(np.zeros((3, 4), np.float32), 1))
    assert shown.startswith("Relaxed(p=float32[3, 4], queue_s=") and "0.25" not in shown
    assert repr(client.sample(np.zeros(4), 1, seed=5)).startswith("Sample(z=bool[4], seed=5, ")
    assert repr(client) == f"Client({client.address!r})"


def test_every_error_of_a_call_is_ours(client):
    """Also what only the server can refuse."""
    for job_id in ("", "x" * 1000, "\N{SNOWMAN}"):
        with pytest.raises(KhotError, match="."):
            client.job(job_id).status()


def test_times_are_in_utc(client):
    status = client.submit(FeatureSelection(k=10, epochs=1)).status()
    age = datetime.datetime.now(datetime.UTC) - status.create_time
    assert abs(age) < datetime.timedelta(minutes=1)

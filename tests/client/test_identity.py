"""Tokens, to a server that requires them."""

import runpy
from pathlib import Path

import pytest

from khot_client import Client, PermissionDenied, Unauthenticated
from khot_server.api.identity import new_token

DEMO = Path(__file__).parents[1] / "e2e/demo.py"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The address of a server with tokens, and a token for sampling only."""
    token, entry = new_token("vision", ["sample"])
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    tokens.write_text(entry)
    with runpy.run_path(str(DEMO))["running_server"]("--tokens", str(tokens)) as server:
        yield server.address, token


def test_the_token_is_sent_with_every_call(guarded, monkeypatch):
    address, token = guarded
    with Client(address, token=token) as client:
        assert client.relax([0.0, 0.0], 1).p.tolist() == [0.5, 0.5]
    monkeypatch.setenv("KHOT_TOKEN", token)
    with Client(address) as client:
        assert client.list_operators()


@pytest.mark.parametrize("token", [None, "khot_unknown"], ids=["none", "unknown"])
def test_without_a_known_token_nothing_is_answered(guarded, token):
    with Client(guarded[0], token=token) as client:
        for call in (client.list_operators, client.job("x").status, client.job("x").wait):
            with pytest.raises(Unauthenticated, match="Set KHOT_TOKEN or pass token=") as caught:
                call()
            assert caught.value.reason == "UNAUTHENTICATED"


def test_a_token_without_the_scope_is_not_enough(guarded):
    address, token = guarded
    refused = pytest.raises(PermissionDenied, match="must have the scope jobs; got")
    with Client(address, token=token) as client, refused:
        client.job("x").status()

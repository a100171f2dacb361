"""Who asks, and may see what."""

import base64
from http import HTTPStatus

import pytest

from khot_server.api.identity import LOCAL


def basic(password: str, user: str = "anyone") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_without_tokens_this_machine_is_let_in(site, ask, seen):
    for peer, host in (
        ("127.0.0.1", "localhost:9551"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]:9551"),
        ("::1", "[::1]"),
    ):
        reply = ask(site, peer=peer, host=host)
        assert reply.status == HTTPStatus.OK
        assert f"tenant {LOCAL.tenant}" in seen(reply).text


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.7", "localhost:9551"),
        ("127.0.0.1", "rebound.evil.test:9551"),
        ("127.0.0.1", "localhost.evil.test"),
        ("127.0.0.1", ""),
    ],
)
def test_without_tokens_nobody_else_is(site, jobs, ask, peer, host):
    job = jobs.succeeded()
    for path in ("/", f"/jobs/{job}/curves.png"):
        reply = ask(site, path, peer=peer, host=host)
        assert reply.status == HTTPStatus.FORBIDDEN
        assert b"must be asked for from this machine" in reply.body


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1:9551", 200), ("rebound.evil.test", 403)])
def test_an_anonymous_server_hears_from_elsewhere_by_our_names(
    site, ask, host, status, monkeypatch
):
    monkeypatch.setattr(site, "_anonymous", True)
    assert ask(site, peer="10.0.0.7", host=host).status == status


def test_metrics_and_style_need_no_token_from_anywhere(site, guarded, ask):
    for one in (site, guarded):
        for path in ("/metrics", "/style.css", "/icon.svg"):
            assert ask(one, path, peer="10.0.0.7", host="khot:9551").status == HTTPStatus.OK


@pytest.mark.parametrize("user", ["", "anyone", "ü"])
def test_a_token_is_the_password_of_any_user(guarded, ask, seen, user):
    reply = ask(guarded, Authorization=basic("vision", user), peer="10.0.0.7", host="khot:9551")
    assert reply.status == HTTPStatus.OK
    assert "tenant vision" in seen(reply).text


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer vision",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + base64.b64encode(b"vision").decode(),  # the user, and no password
        basic(""),
        basic("visio"),
        basic("vision "),
    ],
)
def test_any_other_is_asked_for_one(guarded, ask, jobs, header):
    job = jobs.succeeded("vision")
    for path in ("/", f"/jobs/{job}/report.html"):
        reply = ask(guarded, path, Authorization=header)
        assert reply.status == HTTPStatus.UNAUTHORIZED
        assert reply.headers["WWW-Authenticate"].startswith('Basic realm="khot')
        assert b"password: must be a token" in reply.body


def test_a_tenant_sees_its_own_jobs_alone(guarded, jobs, ask, seen):
    job = jobs.succeeded("vision", dataset="theirs-done")
    jobs.running("vision", dataset="theirs-running")
    jobs.failed("theirs-broke", "vision")
    jobs.queued("vision", dataset="theirs-queued")
    own, other = (ask(guarded, Authorization=basic(tenant)).body for tenant in ("vision", "speech"))
    for name in (b"theirs-done", b"theirs-running", b"theirs-broke", b"theirs-queued"):
        assert name in own and name not in other
    path = f"/jobs/{job}/curves.png"
    assert ask(guarded, path, Authorization=basic("vision")).status == HTTPStatus.OK
    assert ask(guarded, path, Authorization=basic("speech")).status == HTTPStatus.NOT_FOUND


def test_a_token_that_may_not_read_jobs_sees_none(guarded, jobs, ask, seen):
    job = jobs.succeeded("vision", dataset="churn")
    reply = ask(guarded, Authorization=basic("sampler"))
    assert "this token has not the scope jobs" in seen(reply).text
    assert b"churn" not in reply.body
    reply = ask(guarded, f"/jobs/{job}/curves.png", Authorization=basic("sampler"))
    assert reply.status == HTTPStatus.FORBIDDEN
    assert b"token: must have the scope jobs" in reply.body

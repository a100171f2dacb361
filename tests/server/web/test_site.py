"""Which path is answered with what, and with which headers."""

import gzip
import re
from http import HTTPStatus

import pytest
from prometheus_client import Counter, Gauge
from structlog.testing import capture_logs

from khot_server.api.identity import Identity
from khot_server.config import BadSettings, load
from khot_server.jobs.database import DatabaseUnavailable
from khot_server.web import page, words

HOSTILE = (
    "<script>document.title='taken'</script>",
    "\"><img src=x onerror='alert(1)'>",
    "' onmouseover=alert(1) x='",
    "</title></bdi></td></table><!--",
    "{{ 7 * 7 }}{% include 'x' %}",
    "javascript:alert(1)",
    "&amp;&#39;",
    "\u202eright to left\u2069\u2066",
    "W" * 5000,
    "\x00\x1b[31m\ud800",
)
# Every element of the page, and none that could run, send or embed anything.
OURS = {"html", "head", "meta", "title", "link", "body", "main", "header", "footer", "nav"}
OURS |= {"section", "article", "h1", "h2", "h3", "p", "div", "span", "strong", "bdi", "code"}
OURS |= {"dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "time"}
OURS |= {"a", "img", "progress", "svg", "path"}
STRICT = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def policy(reply):
    return dict(
        rule.partition(" ")[::2] for rule in reply.headers["Content-Security-Policy"].split("; ")
    )


def test_every_reply_has_strict_headers(site, jobs, ask):
    job = jobs.succeeded()
    files = (f"/jobs/{job}/report.html", f"/jobs/{job}/curves.png")
    for path in ("/", "/style.css", "/icon.svg", "/metrics", "/nothing", *files):
        headers = ask(site, path).headers
        assert STRICT.items() <= headers.items(), path


def test_a_page_may_load_its_own_style_and_pictures_and_run_nothing(site, ask):
    for path in ("/", "/nothing"):
        rules = policy(ask(site, path))
        assert rules["default-src"] == "'none'"
        assert rules["style-src"] == rules["img-src"] == "'self'"
        assert "script-src" not in rules and "unsafe" not in str(rules)


def test_files_of_jobs_are_served_as_what_they_are_in_a_sandbox(site, jobs, ask):
    job = jobs.succeeded()
    report = ask(site, f"/jobs/{job}/report.html")
    picture = ask(site, f"/jobs/{job}/inclusion.png")
    for reply, kind in ((report, "text/html; charset=utf-8"), (picture, "image/png")):
        assert (reply.status, reply.headers["Content-Type"]) == (HTTPStatus.OK, kind)
        assert len(reply.body) == reply.size
        rules = policy(reply)
        assert rules["sandbox"] == "" and rules["default-src"] == "'none'"
        assert rules["img-src"] == "data:"


@pytest.mark.parametrize(
    "name",
    [
        "secret.png",  # there, but not listed
        "../secret.png",
        "../../secret.png",
        "..%2fsecret.png",
        "%2e%2e/secret.png",
        "..",
        ".",
        "",
        "curves.png/",
        "curves.png%00",
        "CURVES.PNG",
        "model.safetensors",  # listed, but nothing to look at
        "/etc/passwd",
    ],
)
def test_no_other_file_can_be_named(site, jobs, ask, name):
    job = jobs.succeeded()
    for path in (f"/jobs/{job}/{name}", f"/jobs/{name}", f"/{name}", f"/jobs/../jobs/{job}/{name}"):
        if path == "/":
            continue
        assert ask(site, path).status == HTTPStatus.NOT_FOUND, path


def test_a_file_that_was_removed_is_not_found(site, jobs, ask):
    job = jobs.succeeded()
    (jobs.state_dir / "jobs" / job / "artifacts" / "curves.png").unlink()
    assert ask(site, f"/jobs/{job}/curves.png").status == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_nothing_can_be_changed(site, ask, method):
    for path in ("/", "/metrics", "/nothing"):
        reply = ask(site, path, method=method)
        assert reply.status == HTTPStatus.METHOD_NOT_ALLOWED
        assert reply.headers["Allow"] == "GET, HEAD"


def test_refusals_look_like_the_page_and_say_why(site, ask, seen):
    found = seen(ask(site, "/nothing"))
    assert {"rel": "stylesheet", "href": "/style.css"} in found.attributes("link")
    assert "404 Not Found path: must be /, /metrics" in found.text


def test_a_store_that_cannot_be_read_is_said_so(site, ask, jobs, monkeypatch):
    def fail(*args, **kwargs):
        raise DatabaseUnavailable("database: must be on a disk with room; got none")

    monkeypatch.setattr(jobs.store, "page", fail)
    reply = ask(site)
    assert reply.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert b"must be on a disk with room" in reply.body


def test_a_fault_of_ours_is_logged_and_tells_nothing(site, ask, jobs, monkeypatch, capsys):
    monkeypatch.setattr(jobs.store, "page", lambda *args, **kwargs: 1 / 0)
    reply = ask(site)
    assert reply.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert b"division" not in reply.body
    assert "division by zero" in "".join(capsys.readouterr())


def test_a_fault_is_logged_without_what_was_asked_for(site, ask, jobs, monkeypatch):
    monkeypatch.setattr(jobs.store, "artifacts", lambda *args, **kwargs: 1 / 0)
    with capture_logs() as lines:
        assert ask(site, "/jobs/mine/khot_secret").status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert lines == [{"event": "web_request_failed", "exc_info": True, "log_level": "error"}]


def test_the_link_to_grafana_must_be_of_the_web():
    with pytest.raises(BadSettings, match="grafana-url: must begin with http.*; got 'javascript:"):
        load(["--grafana-url", "javascript:alert(1)"])
    assert load(["--grafana-url", "https://g.test/d"]).grafana_url == "https://g.test/d"


# metrics


def test_metrics_are_those_of_the_registry(site, registry, ask):
    Counter("khot_things", "Things.", registry=registry).inc(3)
    reply = ask(site, "/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=")
    assert b"\nkhot_things_total 3.0\n" in reply.body


def test_metrics_come_compressed_to_who_asks_so(site, registry, ask):
    Counter("khot_things", "Things.", registry=registry).inc(3)
    reply = ask(site, "/metrics", Accept_Encoding="gzip")
    assert reply.headers["Content-Encoding"] == "gzip"
    assert b"\nkhot_things_total 3.0\n" in gzip.decompress(reply.body)


def test_some_metrics_may_be_asked_for_by_name(site, registry, ask):
    for name in ("khot_a", "khot_b"):
        Gauge(name, "", registry=registry)
    body = ask(site, "/metrics?name[]=khot_b").body
    assert b"khot_b 0.0" in body and b"khot_a" not in body


# the status page


def test_the_page_refreshes_itself_unless_it_is_to_stand_still(site, ask, seen):
    def refresh(target):
        metas = seen(ask(site, target)).attributes("meta")
        return [m["content"] for m in metas if m.get("http-equiv") == "refresh"]

    assert refresh("/") == [str(page.REFRESH_S)]
    assert refresh("/?still") == []


def test_the_page_shows_the_service(site, registry, ask, seen):
    for name, value in (
        ("khot_engine_up", 2),
        ("khot_queue_items", 12),
        ("khot_queue_scores", 30),
        ("khot_queue_limit_scores", 120),
        ("khot_state_size_bytes", 250e9),
        ("khot_state_free_bytes", 30e9),
    ):
        Gauge(name, "", registry=registry).set(value)
    Gauge("khot_engine_info", "", ["device"], registry=registry).labels("cuda").set(1)
    Counter("khot_engine_losses", "", registry=registry).inc(3)
    Counter("khot_requests", "", ["method"], registry=registry).labels("Relax").inc(48_213)
    found = seen(ask(site))
    assert "serving" in found.text
    assert "Engines 2 cuda, 3 lost" in found.text
    assert "Queue 12 items waiting" in found.text
    assert "48.2 k answered" in found.text
    assert "Disk 30.0 GB free of 250 GB" in found.text
    queue, disk = found.attributes("meter")
    assert (float(queue["value"]), float(queue["max"])) == (30, 120)
    assert queue["aria-label"] == "Queue: 25 % used"
    assert float(disk["value"]) > float(disk["high"])


@pytest.mark.parametrize(("used", "text"), [(0, "0 of 0 operators"), (1, "5 of 1 operator")])
def test_the_page_says_of_how_many_operators_rows_were_served(
    site, registry, ask, seen, used, text
):
    rows = Counter("khot_rows", "", ["operator"], registry=registry)
    for name, number in (("sigmoid_topk", 5 * used), ("pivotal", 0)):
        rows.labels(name).inc(number)
    assert f"Rows served {text} " in seen(ask(site)).text


def test_a_service_without_an_engine_or_any_figure_says_so(site, ask, seen):
    assert "no engine" in seen(ask(site)).text


def test_the_page_shows_jobs_of_every_sort(site, jobs, ask, seen):
    done = jobs.succeeded(dataset="done")
    jobs.failed("memory: must suffice; got none", dataset="broken")
    jobs.running(losses=[2.5, 1.25], total_steps=80, dataset="going", labels={"team": "vision"})
    jobs.running(dataset="begun")
    jobs.store.cancel("local", jobs.queued(dataset="left"))
    jobs.queued(dataset="next")
    found = seen(ask(site))
    going, begun = sorted(found.attributes("progress"), key=lambda it: "value" not in it)
    assert (going["value"], going["aria-label"]) == ("0.2500", "25 % of the steps")
    assert begun == {"aria-label": "starting"}
    (line,) = found.attributes("svg")
    assert line["aria-label"] == "loss from 2.50 to 1.25"
    for text in (
        "Feature selection on going k = 3 seed 0 team: vision 25 %",
        "1 min left",
        "Feature selection on next k = 3 seed 0 queued",
        "accuracy 0.923",
        "3 of 64 columns: a, b, c",
        "out of memory memory: must suffice; got none",
        "Feature selection on left k = 3 seed 0 cancelled",
    ):
        assert text in found.text
    links = {link["href"] for link in found.attributes("a")}
    assert {
        f"/jobs/{done}/{name}" for name in ("report.html", "inclusion.png", "curves.png")
    } <= links
    assert "https://grafana.test/d/khot" in links
    pictures = [image for image in found.attributes("img") if image["src"] != "/icon.svg"]
    assert [(image["src"], image["alt"]) for image in pictures] == [
        (f"/jobs/{done}/inclusion.png", "inclusion of done")
    ]
    assert all(header["scope"] in ("row", "col") for header in found.attributes("th"))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_users_write_is_text_and_nothing_else(site, jobs, ask, seen, text):
    sent = text.replace("\ud800", "")  # which neither gRPC nor SQLite takes
    labels = {sent[:63]: sent[:63]}
    jobs.succeeded(dataset=sent, names=[text, "b"], labels=labels)
    jobs.failed(sent, dataset=sent, labels=labels)
    jobs.running(losses=[2.0, 1.0], dataset=sent, labels=labels)
    jobs.queued(dataset=sent, labels=labels)
    plain = ask(site)
    assert len(plain.body) < 20_000
    found = seen(plain)
    assert {tag for tag, _ in found.tags} <= OURS
    for tag, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        href = attributes.get("href") or "/"
        assert re.match(r"/|https://grafana\.test/", href), href
    shown = words.user(text, 24)
    assert found.text.count(shown[:-1].strip()) >= 5
    for hidden in "\u202e\u2066\u2069\x00\x1b":
        assert hidden not in found.text


def test_the_name_of_a_tenant_is_text_too(site, ask, seen, monkeypatch):
    evil = Identity(HOSTILE[0] + "\u202e", frozenset({"jobs"}))
    monkeypatch.setattr("khot_server.web.site.identify", lambda *_: evil)
    found = seen(ask(site))
    assert f"tenant {HOSTILE[0]}\ufffd" in found.text
    assert not found.attributes("script")


def test_a_page_is_made_once_a_second_however_often_it_is_asked_for(site, jobs, ask, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(page.time, "monotonic", lambda: clock[0])
    first = ask(site).body
    jobs.queued(dataset="new")
    assert ask(site).body == first
    clock[0] += page.MEMORY_S + 0.1
    assert b"new" in ask(site).body


def test_pages_of_many_callers_do_not_pile_up(site):
    pages = site._pages
    for number in range(page.MOST_PAGES + 10):
        pages.status(Identity(f"tenant{number}", frozenset()), still=False)
    assert len(pages._made) == page.MOST_PAGES

"""The status page of a real server: in a real browser, and among rude clients."""

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import calls
import jobs
import numpy as np
import pytest
from PIL import Image
from processes import Server, wait_until

from khot_client import Client, FeatureSelection
from khot_server.web.page import REFRESH_S
from khot_server.web.server import WORKERS, Bounds

CHROMIUM = shutil.which("chromium")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--no-proxy-server")
FLAGS += ("--disable-background-networking", "--disable-component-update", "--disable-sync")
FLAGS += ("--hide-scrollbars", "--remote-debugging-pipe")
BLUE = {False: (11, 87, 208), True: (108, 164, 248)}  # of progress bars, in light and dark
HOSTILE = "<script>document.title='taken'</script>"
WIDE, NARROW = 1280, 390

# The least contrast between a text and what is behind it, as WCAG counts it.
CONTRAST = """
(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = channels(color).slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return channels(color)[3] === 0 ? behind(node.parentElement) : color;
  };
  const speaks = (node) =>
    [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  return Math.min(...[...document.body.querySelectorAll('*')].filter(speaks).map((node) => {
    const pair = [light(getComputedStyle(node).color), light(behind(node))].sort();
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  }));
})()
"""


class Browser:
    """One page of a headless Chromium, driven by the DevTools protocol over pipes.

    Attributes:
        events: what it has told of, in order.
    """

    def __init__(self, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # it reads descriptor 3 and writes 4
        script = f'exec "$@" 3</dev/fd/{theirs_in} 4>/dev/fd/{theirs_out}'
        self._process = subprocess.Popen(
            ["sh", "-c", script, "sh", CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.events: list[dict[str, Any]] = []
        self._unread, self._number, self._session = b"", 0, {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            piece = os.read(self._in, 1 << 20)
            assert piece, "chromium has ended"
            self._unread += piece
        text, _, self._unread = self._unread.partition(b"\0")
        return json.loads(text)

    def wait_for_load(self) -> None:
        """Return when a page has been loaded, after the events known so far."""
        while self._heard("Page.loadEventFired") == []:
            self.events.append(self._next())

    def _heard(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") == method]

    def open(self, url: str, *, width: int = WIDE, dark: bool = False) -> None:
        """Load the page; forget what was told of others."""
        shape = {"height": 900, "deviceScaleFactor": 1, "mobile": width == NARROW}
        self.call("Emulation.setDeviceMetricsOverride", width=width, **shape)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for_load()

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]

    def picture(self) -> Image.Image:
        """All of the page, also what lies below."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")

    @property
    def asked_for(self) -> set[str]:
        """The addresses that the page has asked for."""
        return {sent["request"]["url"] for sent in self._heard("Network.requestWillBeSent")}

    @property
    def complaints(self) -> list[str]:
        """What the console would show, such as what a policy has stopped."""
        return [entry["entry"]["text"] for entry in self._heard("Log.entryAdded")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a job that has a result, one that runs, one that was cancelled and one that waits."""
    state = tmp_path_factory.mktemp("state")
    running = Server(state, "--warm-attempts", "true", "--grafana-url", "https://grafana.test/")
    try:
        running.wait_until_serving()
        with Client(running.address) as client:
            x = np.random.default_rng(0).normal(size=(120, 3))
            names = [HOSTILE, "\u202eevil", "W" * 900]
            data = client.upload(x, (x[:, 0] > 0).astype(int), columns=names, name=HOSTILE)
            short = FeatureSelection(data.id, k=2, epochs=3)
            client.submit(short, labels={HOSTILE: HOSTILE, "W" * 63: "W" * 63}).wait()
            long = client.submit(FeatureSelection("digits", k=10, epochs=10_000))
            client.submit(FeatureSelection("digits", k=4)).cancel()
            client.submit(FeatureSelection("digits", k=5), labels={"team": "vision"})
            jobs.wait_for_progress(running, long.id)
        wait_until(lambda: b"<svg" in page(running), "a line of the loss")
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


def page(server: Server, path: str = "/") -> bytes:
    with urllib.request.urlopen(server.metrics_url + path, timeout=10) as answer:
        return answer.read()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_page_fits_and_can_be_read(server, browser, width, dark):
    browser.open(f"{server.metrics_url}/?still", width=width, dark=dark)
    assert browser.evaluate("document.scrollingElement.scrollWidth") == width
    assert browser.evaluate(CONTRAST) >= 4.5
    picture = np.asarray(browser.picture())
    brightness = picture.mean()
    assert brightness < 80 if dark else brightness > 200
    assert (picture == BLUE[dark]).all(-1).sum() > 20  # the bar, or the line of the loss


def test_the_page_shows_what_the_server_does(server, browser):
    browser.open(f"{server.metrics_url}/?still")
    text = browser.evaluate("document.body.innerText")
    for part in ("serving", "Running", "Waiting", "Results", "Ended without a result", "cancelled"):
        assert part in text
    assert 0 < browser.evaluate("document.querySelector('progress').position") < 1
    sizes = "[...document.querySelectorAll('.picture img')].map((image) => image.naturalWidth)"
    (drawn,) = browser.evaluate(sizes)
    assert drawn > 100
    grafana = "[...document.links].filter((link) => link.textContent === 'Grafana')[0].href"
    assert browser.evaluate(grafana) == "https://grafana.test/"


def test_what_users_wrote_is_shown_and_never_run(server, browser):
    browser.open(f"{server.metrics_url}/?still")
    assert browser.evaluate("document.title").endswith("khot")
    assert browser.evaluate("document.scripts.length") == 0
    text = browser.evaluate("document.body.innerText")
    assert f"Feature selection on {HOSTILE}" in text  # the name of the data set
    assert text.count("<script>") > 3
    assert browser.complaints == []  # so nothing even tried
    assert all(url.startswith(server.metrics_url) for url in browser.asked_for)


def test_a_report_is_shown_and_shut_in(server, browser):
    browser.open(f"{server.metrics_url}/?still")
    report = browser.evaluate("document.querySelector('a[href$=\"report.html\"]').href")
    browser.open(report)
    assert browser.evaluate("self.origin") == "null"  # a sandbox: of no origin, so with no rights
    assert browser.evaluate("[...document.images].every((image) => image.naturalWidth > 100)")
    assert browser.evaluate("document.images.length") >= 2
    assert browser.complaints == []
    assert {url for url in browser.asked_for if not url.startswith("data:")} == {report}


def test_the_page_refreshes_itself(server, browser):
    browser.open(server.metrics_url)
    began = time.monotonic()
    browser.events.clear()
    browser.wait_for_load()
    assert time.monotonic() - began < 2 * REFRESH_S


def test_a_scrape_is_as_it_was(server):
    assert b"\nkhot_engine_up 1.0\n" in page(server, "/metrics")


def test_rude_clients_hurt_neither_calls_nor_scrapes(server):
    api = Path(f"/proc/{server.pids()['api']}")

    def held() -> tuple[int, int]:
        """Threads and open files."""
        return len(list(api.joinpath("task").iterdir())), len(list(api.joinpath("fd").iterdir()))

    host, _, port = server.metrics_url.removeprefix("http://").rpartition(":")
    page(server)
    server.khot.Relax(calls.quick(), timeout=10)
    threads, files = held()
    with contextlib.ExitStack() as stack:
        for number in range(300):
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            with contextlib.suppress(OSError):  # it may be hung up on before it has sent all
                client.sendall(b"GET / HT" if number % 3 else b"x: " + bytes(1 << 17))
        began = time.monotonic()
        for _ in range(50):
            server.khot.Relax(calls.quick(), timeout=1)
        assert time.monotonic() - began < 5
        assert b"khot_engine_up" in page(server, "/metrics")
        now_threads, now_files = held()
    assert now_threads <= threads + WORKERS
    assert now_files <= files + Bounds().connections + 10

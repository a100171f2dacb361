"""A site with a store of its own, and jobs in every state to be shown on it."""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from khot_server.api.identity import Identity, Tokens
from khot_server.datasets.store import DatasetStore
from khot_server.jobs.artifacts.files import publish
from khot_server.jobs.records import Counted, Options, Point, Progress
from khot_server.jobs.results import FeatureSelectionResult
from khot_server.jobs.spec import FeatureSelectionSpec
from khot_server.jobs.states import FailureKind
from khot_server.jobs.store import JobStore
from khot_server.web.messages import Reply, parse
from khot_server.web.site import Site

PICTURE, REPORT = b"\x89PNG\r\n\x1a\n and so on", b"<!DOCTYPE html><title>report</title>"
FILES = {
    "curves.png": PICTURE,
    "inclusion.png": PICTURE + b"2",
    "model.safetensors": b"weights",
    "report.html": REPORT,
}
SECRET = b"not for a browser"


class Jobs:
    """A store, and jobs that are brought to where a test wants them."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir, self.store = state_dir, JobStore(state_dir / "jobs.sqlite3")
        self.datasets = DatasetStore(self.store.database, state_dir)
        self._numbers = count()

    def queued(self, tenant: str = "local", *, labels: Mapping[str, str] = {}, **spec: Any) -> str:
        asked = FeatureSelectionSpec(**({"dataset": "digits", "k": 3} | spec))
        options = Options(labels=labels)
        return self.store.submit(tenant, str(next(self._numbers)), asked, options).id

    def running(self, tenant: str = "local", losses=(), total_steps: int = 100, **spec: Any) -> str:
        """One that has told these losses, one each 10 steps."""
        job, token = self._claimed(tenant, **spec)
        if losses:
            steps = range(10, 10 * len(losses) + 1, 10)
            points = [
                Point(step, 2, "selection", {"loss": loss})
                for step, loss in zip(steps, losses, strict=True)
            ]
            where = {"step": steps[-1], "total_steps": total_steps, "epoch": 2, "remaining_s": 90.0}
            progress = Progress(metrics=points[-1].metrics, stage="selection", **where)
            self.store.leases.progress(token, progress, points, Counted())
        return job

    def succeeded(self, tenant: str = "local", names=("a", "b", "c"), files=FILES, **spec: Any):
        job, token = self._claimed(tenant, **spec)
        result = FeatureSelectionResult(
            features=tuple(range(len(names))),
            names=tuple(names),
            scores=(0.0,) * 64,
            inclusion_probabilities=(0.5,) * 64,
            test={"loss": 0.25, "accuracy": 0.923},
            validation={},
            stability=1.0,
            epochs_run=1,
        )
        directory = self.state_dir / "jobs" / job / "artifacts"
        self.store.leases.succeed(token, result, publish(directory, files))
        for folder in (directory, directory.parent, self.state_dir):
            (folder / "secret.png").write_bytes(SECRET)
        return job

    def failed(self, message: str, tenant: str = "local", **spec: Any) -> str:
        job, token = self._claimed(tenant, **spec)
        self.store.leases.fail(token, FailureKind.OUT_OF_MEMORY, message)
        return job

    def _claimed(self, tenant: str, **spec: Any) -> tuple[str, str]:
        """No other may be queued meanwhile."""
        job = self.queued(tenant, **spec)
        claim = self.store.leases.claim("runner", 1e6)
        assert claim.job_id == job
        return job, claim.token


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """The file of a store, which takes longer to make than to copy."""
    path = tmp_path_factory.mktemp("empty") / "jobs.sqlite3"
    JobStore(path).close()
    return path


@pytest.fixture
def jobs(empty, tmp_path):
    shutil.copy(empty, tmp_path)
    made = Jobs(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def site(jobs, registry):
    url = "https://grafana.test/d/khot"
    return Site(registry, jobs.store, jobs.datasets, jobs.state_dir, grafana_url=url)


@pytest.fixture
def tokens():
    """Each tenant's name is its token; `sampler` may sample for vision and no more."""
    known = {name: Identity(name, frozenset({"jobs"})) for name in ("vision", "speech")}
    known["sampler"] = Identity("vision", frozenset({"sample"}))
    return Tokens({hashlib.sha256(token.encode()).hexdigest(): who for token, who in known.items()})


@pytest.fixture
def guarded(jobs, registry, tokens):
    return Site(registry, jobs.store, jobs.datasets, jobs.state_dir, tokens=tokens)


def ask(
    site: Site,
    target: str = "/",
    *,
    method: str = "GET",
    peer: str = "127.0.0.1",
    host: str = "localhost:9551",
    **headers: str,
) -> Reply:
    """What the site answers, read; an underscore in the name of a header is a hyphen."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    reply = site.answer(parse("\r\n".join([*lines, "", ""]).encode("latin-1"), peer))
    if isinstance(reply.body, bytes):
        return reply
    with reply.body as file:
        return replace(reply, body=file.read())


@dataclass
class Seen:
    """What a browser makes of a page.

    Attributes:
        tags: each element, with its attributes.
        text: what is read.
    """

    tags: list[tuple[str, dict[str, str | None]]]
    text: str

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def seen(reply: Reply) -> Seen:
    page = Seen([], "")

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            page.tags.append((tag, dict(attrs)))

        def handle_data(self, data):
            page.text += data

    Reader().feed(reply.body.decode())
    page.text = " ".join(page.text.split())
    return page


@pytest.fixture(name="ask")
def _ask() -> Callable[..., Reply]:
    return ask


@pytest.fixture(name="seen")
def _seen() -> Callable[[Reply], Seen]:
    return seen

"""The pages, made of templates that escape whatever they are given."""

import threading
import time
from datetime import UTC, datetime

import jinja2
from prometheus_client import CollectorRegistry

from khot_server.api.identity import Identity
from khot_server.jobs.artifacts import words as report_words
from khot_server.web import sparkline, words
from khot_server.web.access import sees_jobs
from khot_server.web.board import Board, Figures
from khot_server.web.messages import Refused

REFRESH_S = 5
MEMORY_S = 1.0  # so old may a page be: however often it is asked for, it is seldom made
MOST_PAGES = 64  # that are remembered


class Pages:
    """Makes pages; from any thread, one at a time.

    Args:
        registry: of the metrics.
        board: of the jobs.
        grafana_url: where the dashboards are; None if there are none.
    """

    def __init__(
        self, registry: CollectorRegistry, board: Board, grafana_url: str | None = None
    ) -> None:
        self._registry, self._board = registry, board
        self._templates = _templates()
        self._templates.globals["grafana_url"] = grafana_url
        self._made: dict[tuple[Identity, bool], tuple[float, bytes]] = {}
        self._lock = threading.Lock()

    def status(self, identity: Identity, *, still: bool) -> bytes:
        """Return the status page of a caller; a still one does not refresh itself."""
        key = (identity, still)
        with self._lock:
            made_at, page = self._made.pop(key, (0.0, b""))
            if not page or time.monotonic() - made_at > MEMORY_S:
                page, made_at = self._render(identity, still=still), time.monotonic()
            if len(self._made) >= MOST_PAGES:
                del self._made[next(iter(self._made))]  # the one not asked for the longest
            self._made[key] = made_at, page
        return page

    def message(self, why: Refused) -> bytes:
        """Return the page that says why a request is not answered."""
        return self._templates.get_template("message.html").render(why=why).encode()

    def _render(self, identity: Identity, *, still: bool) -> bytes:
        page = self._templates.get_template("status.html").render(
            figures=Figures(self._registry),
            jobs=self._board.jobs(identity.tenant) if sees_jobs(identity) else None,
            tenant=identity.tenant,
            refresh_s=None if still else REFRESH_S,
            now=datetime.now(UTC),
        )
        return page.encode()


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("khot_server.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
    )
    texts = (words.user, words.count, words.size, words.duration, words.ago, words.moment)
    made.filters |= {each.__name__: each for each in (*texts, report_words.number)}
    made.globals |= {"kinds": report_words.KINDS, "box": (sparkline.WIDTH, sparkline.HEIGHT)}
    return made

"""Which path is answered with what, and with which headers.

/                 the status page; `/?still` is one that does not refresh itself
/jobs/JOB/NAME    a picture or the report of a job
/metrics          for Prometheus
/style.css        and what else the pages need
"""

import gzip
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qs

import structlog
from prometheus_client import CollectorRegistry

from khot_server.api.identity import Identity, Tokens
from khot_server.datasets.store import DatasetStore
from khot_server.jobs.artifacts.report import CSP as REPORT_CSP
from khot_server.jobs.database import DatabaseUnavailable
from khot_server.jobs.files import job_directory
from khot_server.jobs.records import JobNotFound
from khot_server.jobs.store import JobStore
from khot_server.metrics.exposition import CONTENT_TYPE, Exposition
from khot_server.web.access import identify, sees_jobs
from khot_server.web.board import PNG, REPORT, Board
from khot_server.web.messages import Refused, Reply, Request
from khot_server.web.page import Pages

log = structlog.get_logger()

HTML = "text/html; charset=utf-8"
STATIC = {"style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
ALONE = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_CSP = f"default-src 'none'; style-src 'self'; img-src 'self'; {ALONE}"
# A file of a job may reach nothing and nobody; a report has its style and pictures within.
FILE_CSP = f"sandbox; {REPORT_CSP}; {ALONE}"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Site:
    """Answers requests; from any thread.

    Args:
        registry: of the metrics.
        store: of the jobs.
        datasets: that they are about.
        state_dir: where their files are.
        tokens: of the callers; None: everybody on this machine is the tenant `local`.
        anonymous: without tokens, so is everybody who asks from elsewhere.
        grafana_url: where the dashboards are; None if there are none.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        store: JobStore,
        datasets: DatasetStore,
        state_dir: Path,
        *,
        tokens: Tokens | None = None,
        anonymous: bool = False,
        grafana_url: str | None = None,
    ) -> None:
        self._store, self._state_dir = store, state_dir
        self._tokens, self._anonymous = tokens, anonymous
        self._pages = Pages(registry, Board(store, datasets), grafana_url)
        self._exposition = Exposition(registry)
        folder = resources.files(__package__).joinpath("static")
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC}

    def answer(self, request: Request) -> Reply:
        """Return the reply; a request that is refused has one too."""
        try:
            if request.method not in ("GET", "HEAD"):
                must = "method: must be GET or HEAD, for nothing can be changed here"
                status = HTTPStatus.METHOD_NOT_ALLOWED
                raise Refused(status, f"{must}; got another", Allow="GET, HEAD")
            return self._route(request)
        except Refused as refused:
            return self.refuse(refused)
        except DatabaseUnavailable as error:
            return self.refuse(Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)))
        except Exception:
            log.exception("web_request_failed")  # without the path, for who knows what stands there
            text = "server: must not fail so; got a fault of its own, which its log tells of"
            return self.refuse(Refused(HTTPStatus.INTERNAL_SERVER_ERROR, text))

    def refuse(self, why: Refused) -> Reply:
        """Return the page that says why."""
        return _reply(self._pages.message(why), HTML, why.status, **why.headers)

    def _route(self, request: Request) -> Reply:
        match request.path.split("/")[1:]:
            case ["metrics"]:
                return self._metrics(request)
            case [name] if name in STATIC:
                return _reply(self._static[name], STATIC[name])
            case [""]:
                caller = identify(self._tokens, request, self._anonymous)
                return _reply(self._pages.status(caller, still=request.query == "still"), HTML)
            case ["jobs", job_id, name]:
                caller = identify(self._tokens, request, self._anonymous)
                return self._file(caller, job_id, name)
        must = "path: must be /, /metrics, or that of a picture or report of a job"
        raise Refused(HTTPStatus.NOT_FOUND, f"{must}; got another")

    def _metrics(self, request: Request) -> Reply:
        """All metrics; or those that the query names, as in `?name[]=khot_jobs`."""
        names = parse_qs(request.query).get("name[]")
        body, more = self._exposition.page(names), dict[str, str]()
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body, more = gzip.compress(body, compresslevel=1), {"Content-Encoding": "gzip"}
        return _reply(body, CONTENT_TYPE, HTTPStatus.OK, **more)

    def _file(self, caller: Identity, job_id: str, name: str) -> Reply:
        if not sees_jobs(caller):
            must = f"token: must have the scope jobs; got {sorted(caller.scopes)}"
            raise Refused(HTTPStatus.FORBIDDEN, must)
        try:
            listed = self._store.artifacts(caller.tenant, job_id)
            # so no path is ever made of a name that is not listed
            (found,) = (file for file in listed if file.name == name)
            if found.media_type != PNG and found.name != REPORT:
                raise FileNotFoundError(name)
            path = job_directory(self._state_dir, job_id) / "artifacts" / found.name
            file = path.open("rb")
        except (JobNotFound, ValueError, FileNotFoundError):
            must = "file: must be a picture or the report of a job that is there"
            raise Refused(HTTPStatus.NOT_FOUND, f"{must}; got another") from None
        headers = _headers(found.media_type, FILE_CSP)
        return Reply(HTTPStatus.OK, file, found.size_bytes, headers)


def _reply(body: bytes, media_type: str, status: HTTPStatus = HTTPStatus.OK, **more: str) -> Reply:
    return Reply(status, body, len(body), _headers(media_type, PAGE_CSP) | more)


def _headers(media_type: str, csp: str) -> dict[str, str]:
    return {"Content-Type": media_type, "Content-Security-Policy": csp, **HEADERS}

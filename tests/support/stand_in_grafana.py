"""What of Grafana the compose stack relies on, where Grafana itself cannot be had.

It reads the provisioning files as Grafana does, variables and all, and answers four paths of
Grafana's HTTP API from them, so a test asks both in the same words. It draws nothing.

    /api/health
    /api/search                                      the dashboards
    /api/dashboards/home                             the one that is shown first
    /api/datasources/proxy/uid/UID/PATH              passed on to the data source

Runs in a container with Python and PyYAML, and nothing else of ours.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

PROVISIONING = Path(os.environ.get("GF_PATHS_PROVISIONING", "/etc/grafana/provisioning"))
HOME = Path(os.environ["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])


def provisioned(kind: str) -> list[dict[str, Any]]:
    """The entries of all files of a kind, with the values of variables."""
    entries: list[dict[str, Any]] = []
    for path in sorted((PROVISIONING / kind).glob("*.y*ml")):
        file = yaml.safe_load(os.path.expandvars(path.read_text()))
        entries += file.get("datasources") or file.get("providers") or []
    return entries


def dashboards() -> list[dict[str, Any]]:
    found = []
    for provider in provisioned("dashboards"):
        for path in sorted(Path(provider["options"]["path"]).glob("*.json")):
            board = json.loads(path.read_text())
            found.append({"uid": board["uid"], "title": board["title"], "type": "dash-db"})
    return found


def proxied(uid: str, path: str) -> Any:
    (source,) = (one for one in provisioned("datasources") if one["uid"] == uid)
    with urllib.request.urlopen(f"{source['url']}/{path}", timeout=10) as page:
        return json.load(page)


def answer(path: str) -> Any:
    match path.split("/")[1:]:
        case ["api", "health"]:
            return {"database": "ok"}
        case ["api", search] if search.partition("?")[0] == "search":
            return dashboards()
        case ["api", "dashboards", "home"]:
            return {"dashboard": json.loads(HOME.read_text())}
        case ["api", "datasources", "proxy", "uid", uid, *rest]:
            return proxied(uid, "/".join(rest))
    raise FileNotFoundError(path)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        anonymous = os.environ.get("GF_AUTH_ANONYMOUS_ENABLED") == "true"
        try:
            if self.path != "/api/health" and not anonymous:
                status, body = 401, {"message": "Unauthorized"}
            else:
                status, body = 200, answer(self.path)
        except (OSError, ValueError, KeyError, urllib.error.URLError) as error:
            status, body = 500, {"message": f"{type(error).__name__}: {error}"}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text)

    do_HEAD = do_GET  # noqa: N815


if __name__ == "__main__":
    Path("/var/lib/grafana/grafana.db").touch()  # as Grafana would, it must be able to write there
    print("listening", file=sys.stderr, flush=True)
    ThreadingHTTPServer(("", 3000), Handler).serve_forever()

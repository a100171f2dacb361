"""A real Prometheus with our rules, which scrapes a real server."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from processes import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
INTERVAL_S = 1
START_S = 30.0

Labels = frozenset[tuple[str, str]]


class Prometheus:
    """`prometheus` as a child process, with the files of deploy/prometheus.

    Only the target and the intervals are other ones: it looks every second.

    Attributes:
        url: where it answers.
    """

    def __init__(self, directory: Path, target: str) -> None:
        """Start it, to scrape `target` (host:port) and to keep its data in `directory`."""
        shutil.copytree(DEPLOY / "prometheus", directory / "prometheus")
        config = directory / "prometheus/prometheus.yml"
        text = config.read_text().replace("127.0.0.1:9551", target)
        config.write_text(re.sub(r"(\w+_interval): \w+", rf"\1: {INTERVAL_S}s", text))
        self._log: list[str] = []
        self._listening = threading.Event()
        self.url = ""
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            assert self._listening.wait(START_S) and self.url, "\n".join(self._log)
            wait_until(self._ready, "Prometheus", START_S)
        except BaseException:
            self.end()
            raise

    def _read(self) -> None:
        for line in self.process.stderr:
            self._log.append(line.rstrip())
            if found := re.search(r'msg="Listening on" address=(\S+)', line):
                self.url = f"http://{found[1]}"
                self._listening.set()
        self._listening.set()  # it has ended

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10):
                return True
        except urllib.error.URLError:
            return False

    def get(self, what: str, **arguments: str) -> Any:
        """What its API answers.

        Raises:
            ValueError: it refused, with its reason.
        """
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as page:
                return json.load(page)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{arguments}: {error.read().decode()}") from None

    def query(self, expression: str) -> dict[Labels, float]:
        """The values of an expression now, by labels without the name."""
        found = self.get("query", query=expression)["result"]
        return {_labels(each["metric"]): float(each["value"][1]) for each in found}

    def value(self, expression: str) -> float:
        """The only value of an expression now."""
        (value,) = self.query(expression).values()
        return value

    def by(self, label: str, expression: str) -> dict[str, float]:
        """The values of an expression now, by one label that each has."""
        return {dict(key)[label]: value for key, value in self.query(expression).items()}

    def over(
        self, expression: str, start: float, end: float, step_s: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """The values of an expression in a range of time, (labels, (time, value) in order)."""
        arguments = {"start": str(start), "end": str(end), "step": str(step_s)}
        found = self.get("query_range", query=expression, **arguments)["result"]
        return [
            (each["metric"], [(float(at), float(value)) for at, value in each["values"]])
            for each in found
        ]

    def wait_until_scraped(self, since: float) -> None:
        """Return once scrapes and rules have seen what was there at this time."""
        for name in ('up{job="khot"}', "instance:khot_state_free:ratio"):
            newest = f"max(timestamp({name}))"
            wait_until(lambda newest=newest: self._newer(newest, since), f"{name} of now")

    def _newer(self, expression: str, since: float) -> bool:
        values = [*self.query(expression).values()]
        # the rules see the scrape before
        return bool(values) and values[0] > since + 2 * INTERVAL_S

    def end(self) -> None:
        """Stop it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()


def _labels(metric: dict[str, str]) -> Labels:
    return frozenset((name, value) for name, value in metric.items() if name != "__name__")

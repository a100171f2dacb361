"""The compose stack as a user has it: built, started, asked and stopped by `docker compose`."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import docker
from engine import Engine
from processes import THEIRS, wait_until

from khot_client import Client

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy/docker"))
from check import compose_command  # noqa: E402

BASE = ("docker-compose.yml", "tests/deploy/any-port.yml")
START_S = 300.0
JOBS_S = 300.0


class Stack:
    """One project of compose.

    Args:
        files: compose files beside those that every test needs.
    """

    def __init__(self, engine: Engine, project: str, *files: str, **variables: str) -> None:
        self.engine, self.project = engine, project
        self._files = (*BASE, *engine.overrides, *files)
        # what the user has set is for his own stack
        theirs = {name for name in engine.environment if name.startswith(("KHOT_", "COMPOSE_"))}
        kept = {name: v for name, v in engine.environment.items() if name not in theirs}
        self.environment = kept | variables

    def command(self) -> list[str]:
        """What stands for `docker compose` on the pages."""
        compose = compose_command()
        assert compose, "needs docker compose; .ci/get-compose unpacks one"
        files = [part for file in self._files for part in ("-f", str(ROOT / file))]
        return [*compose, "-p", self.project, *files]

    def __call__(self, *arguments: str) -> str:
        """Run `docker compose` with these arguments; return its output."""
        return self.shell(shlex.join(["docker", "compose", *arguments]))

    def shell(self, line: str, cwd: Path = ROOT) -> str:
        """Run a line as it stands on a page: `docker compose` is this stack."""
        ours = shlex.join([*self.command(), "--project-directory", str(ROOT)])
        done = subprocess.run(
            ["sh", "-ec", line.replace("docker compose", ours)],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def up(self) -> None:
        """Start it, and return when all of it is healthy."""
        self("up", "--detach", "--no-build")
        for service in ("server", "prometheus", "grafana"):
            self.wait_healthy(service)

    def wait_healthy(self, service: str) -> None:
        def healthy() -> bool:
            found = self.container(service)
            return found.attrs["State"].get("Health", {}).get("Status") == "healthy"

        try:
            wait_until(healthy, f"{service} to be healthy", START_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self('logs', '--no-color', service)}") from None

    def end(self) -> None:
        """Remove it, with its volumes."""
        self("down", "--volumes", "--timeout", "5")

    def container(self, service: str) -> Any:
        """The container of a service, by the docker SDK; also one that has ended."""
        labels = [f"com.docker.compose.project={self.project}"]
        labels.append(f"com.docker.compose.service={service}")
        (found,) = self.engine.client.containers.list(all=True, filters={"label": labels})
        return found

    def run(self, service: str, *command: str) -> str:
        """The output of a command in the container of a service."""
        status, output = self.container(service).exec_run(list(command))
        assert status == 0, output.decode()
        return output.decode()

    def port(self, service: str, port: int) -> str:
        """Where a port is published, host:port."""
        bindings = self.container(service).attrs["NetworkSettings"]["Ports"][f"{port}/tcp"]
        return f"{bindings[0]['HostIp']}:{bindings[0]['HostPort']}"

    def get(self, service: str, port: int, path: str, **query: str) -> Any:
        """The JSON that a service answers over HTTP."""
        url = f"http://{self.port(service, port)}{path}"
        asked = f"{url}?{urllib.parse.urlencode(query)}" if query else url
        with urllib.request.urlopen(asked, timeout=30) as page:
            return json.load(page)

    @property
    def address(self) -> str:
        return self.port("server", 50551)

    def client(self, **settings: Any) -> Client:
        return Client(self.address, **settings)

    def khot(self, *arguments: str, **variables: str) -> str:
        """The output of the `khot` command on this machine, outside all containers."""
        ours = {name: value for name, value in os.environ.items() if name not in THEIRS}
        done = subprocess.run(
            [str(Path(sys.executable).parent / "khot"), *arguments],
            env={**ours, "KHOT_ADDRESS": self.address, **variables},
            capture_output=True,
            text=True,
            timeout=JOBS_S,
            check=False,
        )
        assert done.returncode == 0, f"khot {arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait_for(self, job_id: str, state: str) -> Any:
        """The job, once it is in this state."""
        with self.client() as client:

            def reached() -> bool:
                return client.job(job_id).status().state == state

            wait_until(reached, f"{job_id} to be {state}", JOBS_S)
            return client.job(job_id).status()


def ended(container: Any) -> int:
    """The exit status of a container that has ended."""
    with contextlib.suppress(docker.errors.NotFound):
        container.reload()
    assert container.status in ("exited", "stopped"), container.status
    return int(container.attrs["State"]["ExitCode"])

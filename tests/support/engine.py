"""A container engine for tests: Docker where one answers, else podman with stand-in images.

Podman runs as a service of its own, all of it within one folder: its storage, its networks, its
volumes. Docker's compose and SDK speak to it as they would to Docker.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import docker
import stand_ins
from processes import wait_until

# Every line is needed where podman runs as root without systemd.
STORAGE = """
[storage]
driver = "overlay"
runroot = "{folder}/run"
graphroot = "{folder}/images"
"""
CONTAINERS = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "{folder}/tmp"
"""
NEEDED = ("podman", "buildah", "runc", "debootstrap", "iptables")


class NoEngine(Exception):
    """There is neither Docker nor all that podman needs."""


class Engine:
    """Where images are built and containers run.

    Attributes:
        client: of the docker SDK.
        environment: in which compose finds the engine.
        overrides: compose files that this engine needs.
        is_docker: whether it is Docker, with its registry.
    """

    is_docker = True
    overrides: tuple[str, ...] = ()

    def __init__(self, client: docker.DockerClient, environment: dict[str, str]) -> None:
        self.client, self.environment = client, environment

    def say_health(self, containers: list[str]) -> None:
        """Docker runs health checks by itself."""


class PodmanEngine(Engine):
    is_docker = False
    overrides = ("tests/deploy/stand-ins.yml",)

    def __init__(self, client: docker.DockerClient, podman: stand_ins.Podman, at: Path) -> None:
        # its build knows nothing of BuildKit
        added = {"DOCKER_HOST": f"unix://{at}", "DOCKER_BUILDKIT": "0"}
        super().__init__(client, podman.environment | added)
        self.podman = podman

    def say_health(self, containers: list[str]) -> None:
        """Without systemd, nobody runs podman's health checks unless asked."""
        for name in containers:
            # an unhealthy one is an answer too, and one that has just ended is none
            with contextlib.suppress(AssertionError):
                self.podman("healthcheck", "run", name)


@contextlib.contextmanager
def running_engine(folder: Path) -> Iterator[Engine]:
    """An engine; of podman, nothing is left of it.

    Raises:
        NoEngine: none can be had here.
    """
    if docker_answers():
        with contextlib.closing(docker.from_env(timeout=600)) as client:
            yield Engine(client, dict(os.environ))
        return
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid():
        must = "engine: must be Docker, or podman as root with its parts"
        raise NoEngine(f"{must}; got no Docker, uid {os.geteuid()}, and not {missing}")
    with _podman(folder) as engine:
        yield engine


def docker_answers() -> bool:
    """Whether there is a Docker engine; the SDK leaves a socket open where there is none."""
    kind, _, path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    if kind != "unix":
        return True  # whoever has said so
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@contextlib.contextmanager
def _podman(folder: Path) -> Iterator[Engine]:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("DOCKER_")}
    for variable, name, text in (
        ("CONTAINERS_STORAGE_CONF", "storage.conf", STORAGE),
        ("CONTAINERS_CONF", "containers.conf", CONTAINERS),
    ):
        (folder / name).write_text(text.format(folder=folder))
        environment[variable] = str(folder / name)
    environment["BUILDAH_ISOLATION"] = "chroot"
    podman = stand_ins.Podman(environment)
    at = folder / "podman.sock"
    log = (folder / "podman.log").open("w")
    service = subprocess.Popen(
        ["podman", "system", "service", "--time=0", f"unix://{at}"],
        env=environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        wait_until(at.exists, "podman's socket")
        with contextlib.closing(docker.DockerClient(f"unix://{at}", timeout=600)) as client:
            stand_ins.make_all(podman, folder / "stand-ins")
            yield PodmanEngine(client, podman, at)
    finally:
        podman("rm", "--all", "--force", "--time=0")
        podman("volume", "rm", "--all", "--force")
        podman("network", "prune", "--force")
        service.terminate()
        service.wait(60)
        log.close()
        podman("rmi", "--all", "--force")
        _end_monitors(folder)
        _unmount(folder)


def _end_monitors(folder: Path) -> None:
    """Podman's monitors of commands stay for minutes, and would then write to the folder again."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"conmon") and any(str(folder).encode() in w for w in command):
                os.kill(int(entry.name), signal.SIGKILL)


def _unmount(folder: Path) -> None:
    """Whatever podman has mounted below the folder, or it could not be removed."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=True)


class HealthRounds:
    """Asks containers for their health, again and again, where the engine does not."""

    def __init__(self, engine: Engine, project: str) -> None:
        self._engine, self._label = engine, f"com.docker.compose.project={project}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "HealthRounds":
        if not self._engine.is_docker:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            # one may be removed while the list is made
            with contextlib.suppress(docker.errors.APIError, docker.errors.NotFound):
                found = self._engine.client.containers.list(filters={"label": self._label})
                self._engine.say_health([one.name for one in found])

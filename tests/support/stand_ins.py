"""Images for a machine that reaches no image registry, made of Debian packages and of wheels.

Each has the name, or by tests/deploy/stand-ins.yml the place, of the image it stands for:

    python:*-slim-bookworm   Debian with its Python, without what Debian's slim images lack too
    python:*-bookworm        the same with pip, a C compiler, and all wheels that the build asks for
    prometheus               Debian's
    grafana                  stand_in_grafana.py, which reads the provisioning as Grafana does

The wheels are fetched here, with this machine's settings of pip, so the images know of no index.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
SUITE = "bookworm"

SLIM = """
FROM scratch
ADD rootfs.tar /
RUN ln -s /usr/bin/python3 /usr/local/bin/python && ln -s /usr/bin/python3 /usr/local/bin/python3
CMD ["python"]
"""
FULL = """
FROM {slim}
RUN apt-get update && apt-get install -y --no-install-recommends \
        gcc libc6-dev python3-pip python3-venv
COPY wheels /wheels
COPY pip.conf /etc/pip.conf
"""
# busybox, for the wget that both real images have
PROMETHEUS = """
FROM {slim}
RUN apt-get update && apt-get install -y --no-install-recommends prometheus busybox \
    && ln -s /bin/busybox /usr/local/bin/wget && install -d -o 65534 -g 65534 /prometheus
VOLUME /prometheus
ENTRYPOINT ["/usr/bin/prometheus"]
"""
GRAFANA = """
FROM {slim}
RUN apt-get update && apt-get install -y --no-install-recommends python3-yaml busybox \
    && ln -s /bin/busybox /usr/local/bin/wget && install -d -o 472 /var/lib/grafana
COPY stand_in_grafana.py /
VOLUME /var/lib/grafana
ENTRYPOINT ["python", "/stand_in_grafana.py"]
"""
# what Debian's slim images lack
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "var/cache/apt")
LEFT_OUT += ("var/lib/apt/lists", "var/log")


class Podman:
    """The command, with the settings of one test."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def __call__(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["podman", *arguments],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"podman {arguments}\n{done.stdout[-3000:]}{done.stderr}"
        return done.stdout


def make_all(podman: Podman, folder: Path) -> None:
    """Make every image that the Dockerfile and stand-ins.yml name."""
    version = re.search(r"^ARG PYTHON=(\S+)", DOCKERFILE.read_text(), re.MULTILINE)[1]
    python = f"docker.io/library/python:{version}"
    slim, full = f"{python}-slim-{SUITE}", f"{python}-{SUITE}"
    make_rootfs(folder / "rootfs.tar", folder / "rootfs")
    fetch_wheels(folder / "wheels")
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    shutil.copy(Path(__file__).parent / "stand_in_grafana.py", folder)
    ours = "localhost/khot-stand-in"
    for name, text in {
        slim: SLIM,
        full: FULL,
        f"{ours}/prometheus:test": PROMETHEUS,
        f"{ours}/grafana:test": GRAFANA,
    }.items():
        file = folder / "Containerfile"
        file.write_text(text.format(slim=slim))
        podman("build", "--quiet", "--format", "docker", "-t", name, "-f", str(file), str(folder))


def make_rootfs(archive: Path, rootfs: Path) -> None:
    """Debian with Python, as small as the image it stands for."""
    if archive.exists():
        return
    command = ["debootstrap", "--variant=minbase", "--include=python3", SUITE, str(rootfs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    for name in LEFT_OUT:
        shutil.rmtree(rootfs / name)
        (rootfs / name).mkdir()
    # as in Debian's images, apt keeps nothing that it could fetch again
    kept = rootfs / "etc/apt/apt.conf.d/docker-clean"
    kept.write_text('DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };\n')
    with kept.open("a") as file:
        file.write('Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\n')
    (rootfs / "var/lib/apt/lists/partial").mkdir()
    (rootfs / "var/cache/apt/archives/partial").mkdir(parents=True)
    subprocess.run(["tar", "-C", str(rootfs), "-cf", str(archive), "."], check=True)
    shutil.rmtree(rootfs)


def fetch_wheels(folder: Path) -> None:
    """Every wheel that the Dockerfile asks for, by the Python of the suite."""
    if folder.exists():
        return
    script = ROOT / "deploy/docker/requirements.py"
    needed = subprocess.run(
        [sys.executable, script, ROOT / "pyproject.toml", "server"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    command += ["--python-version", "3.11", "--only-binary", ":all:"]
    command += ["-c", str(ROOT / "constraints.txt"), "hatchling", *filter(None, needed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

"""What of the container files can be checked without an engine."""

import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from engine import docker_answers
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy/docker"
COMPOSE = (ROOT / "docker-compose.yml").read_text()


def test_images_are_pinned_to_a_version():
    named = re.findall(r"image: (\S+)", COMPOSE)
    assert len(named) == 4
    assert all(re.search(r":v?\d+\.\d+\.\d+(-cuda)?$", name) for name in named), named
    dockerfile = (DOCKER / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON=\d+\.\d+\.\d+$", dockerfile, re.MULTILINE)
    bases = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert {base for base in bases if "/" in base or ":" in base} == {
        "python:${PYTHON}-bookworm",
        "python:${PYTHON}-slim-bookworm",
    }


def test_our_image_has_the_version_of_khot():
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[
        1
    ]
    assert set(re.findall(r"image: khot-server:([\d.]+)", COMPOSE)) == {version}


def test_nothing_is_published_but_on_loopback():
    published = re.findall(r'"(\S+:\d+:\d+)"', COMPOSE)
    assert len(published) == 6
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_both_ways_of_prometheus_differ_in_how_targets_are_found_alone():
    def rest(path: Path) -> str:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        return "\n".join(lines).partition("- job_name: khot")[0]

    assert rest(DOCKER / "prometheus.yml") == rest(ROOT / "deploy/prometheus/prometheus.yml")
    assert "- job_name: khot" in (DOCKER / "prometheus.yml").read_text()


def test_the_layer_of_requirements_has_all_that_an_extra_names():
    main = runpy.run_path(str(DOCKER / "requirements.py"))["requirements"]
    project = {
        "dependencies": ["numpy>=1"],
        "optional-dependencies": {
            "a": ["khot[b,c]", "x"],
            "b": ["y"],
            "c": ["khot[d]"],
            "d": ["z"],
        },
    }
    assert list(main(project, None)) == ["numpy>=1"]
    assert list(main(project, "a")) == ["y", "z", "x"]


@pytest.mark.parametrize("extras", [(), ("server",)])
def test_requirements_are_those_of_the_package(extras):
    command = [sys.executable, DOCKER / "requirements.py", ROOT / "pyproject.toml", *extras]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = {Requirement(line).name for line in done.stdout.splitlines()}
    assert {"numpy", "grpcio", "typer"} <= names and "khot" not in names
    assert ("torch" in names) == ("uvloop" in names) == bool(extras)


def run_check(tmp_path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The check of `make lint`, where there is no docker compose."""
    tools = tmp_path / "bin"
    tools.mkdir()
    # a venv of its own would be the same interpreter beside no docker-compose
    (tools / "python").symlink_to(sys.executable)
    (tools / "hadolint").symlink_to(Path(sys.executable).parent / "hadolint")
    code = f"import sys; sys.executable = {str(tools / 'python')!r}; import runpy; "
    code += f"runpy.run_path({str(DOCKER / 'check.py')!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": str(tools), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_compose_the_check_says_what_it_left_out(tmp_path):
    done = run_check(tmp_path)
    assert done.returncode == 0, done
    assert "left out: docker-compose.yml; got no docker compose" in done.stderr


def test_without_compose_the_check_fails_where_all_is_required(tmp_path):
    done = run_check(tmp_path, KHOT_REQUIRE_ALL="1")
    assert done.returncode == 1
    assert "must be there, KHOT_REQUIRE_ALL=1; got no docker compose" in done.stderr


def test_docker_is_looked_for_where_it_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    assert not docker_answers()
    with socket.create_server(str(tmp_path / "docker.sock"), family=socket.AF_UNIX):
        assert docker_answers()

"""`python deploy/docker/check.py`: the Dockerfile and the compose files are as they must be.

hadolint reads the Dockerfile, `docker compose config` each way in which the files are put together;
neither needs an engine. Without a compose the second part is left out, and that is said;
KHOT_REQUIRE_ALL=1 makes it an error.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = ("-f", "docker-compose.yml")
WAYS = (
    BASE,
    ("--profile", "gpu", *BASE),
    ("--profile", "gpu", *BASE, "-f", "deploy/docker/secure.yml"),
    (*BASE, "-f", "tests/deploy/any-port.yml"),
    (*BASE, "-f", "tests/deploy/any-port.yml", "-f", "tests/deploy/stand-ins.yml"),
)


def compose_command() -> list[str] | None:
    """The command of a compose that reads our files: docker's plugin, or the program alone."""
    here = Path(sys.executable).parent
    programs = (here / "docker-compose", shutil.which("docker-compose"))
    for command in (["docker", "compose"], *([str(path)] for path in programs if path)):
        try:
            done = subprocess.run([*command, "version"], capture_output=True, check=False)
        except OSError:
            continue
        # the first compose was written in Python, and knows neither `name` nor `!override`
        if done.returncode == 0 and b"docker-compose version 1." not in done.stdout:
            return command
    return None


def main() -> int:
    """The exit status."""
    hadolint = [str(Path(sys.executable).parent / "hadolint"), "deploy/docker/Dockerfile"]
    status = subprocess.run(hadolint, cwd=ROOT, check=False).returncode
    compose = compose_command()
    if compose is None:
        required = os.environ.get("KHOT_REQUIRE_ALL") == "1"
        left = "must be there, KHOT_REQUIRE_ALL=1" if required else "left out: docker-compose.yml"
        print(f"check of the compose files: {left}; got no docker compose", file=sys.stderr)
        return 1 if required else status
    for way in WAYS:
        status |= subprocess.run([*compose, *way, "config", "-q"], cwd=ROOT, check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())

"""Print what an install needs besides khot itself, for a layer that outlives changes of khot.

python requirements.py pyproject.toml          # the client
python requirements.py pyproject.toml server   # the service
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OURS = re.compile(r"khot\[(.+)\]")


def requirements(project: dict[str, Any], extra: str | None) -> Iterator[str]:
    """The requirements of khot, or of an extra with those that it names; a name may come twice."""
    for line in project["optional-dependencies"][extra] if extra else project["dependencies"]:
        if named := OURS.fullmatch(line):
            for name in named[1].split(","):
                yield from requirements(project, name)
        else:
            yield line


def main(path: str, *extras: str) -> None:
    project = tomllib.loads(Path(path).read_text())["project"]
    print(*(line for extra in (None, *extras) for line in requirements(project, extra)), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

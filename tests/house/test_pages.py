"""The pages: their examples run, their links lead somewhere, and the tree has them all."""

import doctest
import importlib
import pkgutil
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

import khot
from khot_server.jobs import states

ROOT = Path(__file__).parents[2]
FOLDERS = ("khot", "server", "client", "proto", "deploy", "tests")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / f / "README.md" for f in FOLDERS)]


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_examples_run_and_show_what_they_print(page, capsys):
    """A line `# -> text` in an example says what it prints."""
    for block in blocks(page, "python"):
        exec(compile(block, identify(page), "exec"), {"__name__": "__example__"})
        said = re.findall(r"# -> (.*)", block)
        assert capsys.readouterr().out.splitlines() == said


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_shows_the_two_commands_a_picture_and_an_example():
    page = ROOT / "README.md"
    shown = "\n".join(blocks(page, "sh"))
    assert "make demo" in shown and "make test" in shown
    assert re.search(r"!\[.+\]\(.+\)", page.read_text())
    (example,) = blocks(page, "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 10


def test_commands_on_the_pages_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in PAGES:
        for command in re.findall(
            r"\bmake ([a-z]+(?:-[a-z]+)*)(?=`|\s*$|\s*#|  )", page.read_text()
        ):
            assert command in targets, f"{identify(page)}: make {command}"


def test_make_help_lists_every_command():
    wanted = "help install serve demo proto proto-check fmt lint types test test-slow test-wheel "
    wanted += "test-compose bench bench-smoke check clean"
    out = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"make ([a-z-]+)", out.stdout)) == set(wanted.split())


@pytest.mark.parametrize(
    "module", ["khot", *(m.name for m in pkgutil.walk_packages(khot.__path__, "khot."))]
)
def test_doctests(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


def test_the_server_page_shows_the_table_of_states():
    assert states.markdown() in (ROOT / "server/README.md").read_text()


def test_the_picture_is_what_its_script_draws():
    script = ROOT / "tests/pictures/draw.py"
    drawn = runpy.run_path(str(script))["svg"]()
    assert (script.parent / "sigmoid_topk.svg").read_text() == drawn


def test_the_changelog_has_the_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == khot.__version__
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()

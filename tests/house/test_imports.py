"""Imports point one way: the map of CONTRIBUTING.md, kept."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "khot": ROOT / "khot",
    "khot_proto": ROOT / "proto/khot_proto",
    "khot_client": ROOT / "client/khot_client",
    "khot_server": ROOT / "server/khot_server",
}
WATCHED = {*PACKAGES, "torch", "grpc", "sqlalchemy", "sklearn"}

# What a module may import of the watched names; the longest prefix that fits decides.
ALLOWED = {
    "khot": {"khot", "torch"},
    "khot_proto": {"khot_proto"},
    "khot_client": {"khot_client", "khot_proto", "grpc"},
    "khot_client.sklearn": {"khot_client", "khot", "torch", "sklearn"},
    "khot_client.torch": {"khot_client", "torch"},
    "khot_server": {"khot_server", "khot_proto"},
    "khot_server.api": {
        "grpc",
        "khot_proto",
        "khot_server.api",
        "khot_server.batching",
        "khot_server.config",
        "khot_server.control",
        "khot_server.errors",
        "khot_server.datasets",
        "khot_server.jobs.database",
        "khot_server.jobs.files",
        "khot_server.jobs.groups",
        "khot_server.jobs.records",
        "khot_server.jobs.results",
        "khot_server.jobs.spec",
        "khot_server.jobs.states",
        "khot_server.jobs.store",
        "khot_server.jobs.submission",
        "khot_server.jobs.sweeper",
        "khot_server.logs",
        "khot_server.messages",
        "khot_server.metrics",
        "khot_server.web",
        "khot_server.worker.link",
    },
    "khot_server.batching": {
        "khot_server.batching",
        "khot_server.errors",
        "khot_server.messages",
        "khot_server.metrics",
    },
    "khot_server.healthcheck": {"grpc", "khot_server.config"},
    "khot_server.web": {
        "khot_server.api.identity",
        "khot_server.config",
        "khot_server.datasets",
        "khot_server.jobs.artifacts",
        "khot_server.jobs.database",
        "khot_server.jobs.files",
        "khot_server.jobs.records",
        "khot_server.jobs.results",
        "khot_server.jobs.states",
        "khot_server.jobs.store",
        "khot_server.metrics.exposition",
        "khot_server.web",
    },
    "khot_server.worker.engine": {"khot_server", "khot", "torch"},
    "khot_server.worker.slots": {"khot_server", "khot", "torch"},
    "khot_server.jobs": {"khot_server", "sqlalchemy"},
    "khot_server.datasets": {"khot_server", "sqlalchemy"},
    "khot_server.jobs.checkpoint": {"khot_server", "khot", "torch"},
    "khot_server.jobs.tasks": {"khot_server", "khot", "torch"},
}


def modules():
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            if path.stem.endswith(("_pb2", "_pb2_grpc")):
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *parts)).removesuffix(".__init__"), path


def imports(tree: ast.AST) -> set[str]:
    """The full names of all imported modules, wherever in the file the import stands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports must be absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def starts(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def forbidden(module: str, imported: set[str]) -> set[str]:
    rule = max((prefix for prefix in ALLOWED if starts(module, prefix)), key=len)
    watched = {name for name in imported if name.partition(".")[0] in WATCHED}
    return {name for name in watched if not any(starts(name, may) for may in ALLOWED[rule])}


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=str)
def test_module_imports_only_what_the_map_allows(module, path):
    assert forbidden(module, imports(ast.parse(path.read_text()))) == set()


def test_the_map_names_only_what_there_is():
    there = {module for module, _ in modules()}
    assert set(ALLOWED) <= there


def test_the_map_can_be_broken():
    source = "def f():\n    import torch\nfrom khot_server.jobs import runner\nimport numpy"
    broken = forbidden("khot_server.api.app", imports(ast.parse(source)))
    assert broken == {"torch", "khot_server.jobs.runner"}


def test_these_bring_neither_torch_nor_scikit_learn_along():
    """In a fresh interpreter: what one import brings along is not seen in the sources."""
    modules = (
        "khot_client",
        "khot_client.cli",
        "khot_proto",
        "khot_server.__main__",
        "khot_server.api.app",
        "khot_server.jobs.runner",
    )
    code = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    importlib.import_module(module)\n"
        "    print(module, *{'torch', 'khot', 'sklearn'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*modules]

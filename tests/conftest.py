"""What all tests share: required parts, devices, and the two paths of an operator."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import khot
from khot._native import library

TESTS = Path(__file__).parent
REQUIRE_ALL = os.environ.get("KHOT_REQUIRE_ALL") == "1"


# Processes with as many threads each as there are cores would wait for each other's.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# Where real servers are started.
STARTS_SERVERS = ("server", "client", "e2e", "deploy")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, rather than skip, tests for a device or data that this machine does not have.

    Tests with servers come first, and what is short is left to fill the gaps at the end. Those
    of a file that share one server share one process.
    """
    for item in items:
        if starts_servers(item) and "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    items.sort(key=starts_servers, reverse=True)
    here = {"gpu": torch.cuda.is_available(), "data": "KHOT_DATA_DIR" in os.environ}
    lacking = {name for name, there in here.items() if not there}
    left_out = [item for item in items if lacking & {mark.name for mark in item.iter_markers()}]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def starts_servers(item: pytest.Item) -> bool:
    return item.path.relative_to(TESTS).parts[0] in STARTS_SERVERS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a process all cases of a function, where those are short.

    So what they share is made once, and there are fewer parts: with thousands of them the
    scheduler, which looks through all at every test, would need as long as many of the tests.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFunction(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            file, _, _ = nodeid.partition("::")
            if scope != nodeid or not {*Path(file).parts}.isdisjoint(STARTS_SERVERS):
                return scope
            return nodeid.partition("[")[0]

    return ByFunction(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Under KHOT_REQUIRE_ALL=1 a test skipped for a missing part has failed."""
    report = yield
    return fail_if_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    """The same for a whole file."""
    report = yield
    return fail_if_skipped(report)


def fail_if_skipped(report):
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"KHOT_REQUIRE_ALL=1, so nothing may be missing; got: {reason}"
    return report


@pytest.fixture(params=["native", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test on the C kernels, and on torch operations."""
    if request.param == "torch":
        monkeypatch.setattr(library._library, "object", None)
    elif not khot.native_info().in_use:
        pytest.skip(f"needs the C kernels: {khot.native_info().reason}")
    return request.param


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)

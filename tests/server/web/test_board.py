"""What the page shows of the registry and the store."""

from math import inf, nan

import pytest
from prometheus_client import Counter, Gauge

from khot_server.web import board
from khot_server.web.board import Board, Figures


@pytest.fixture
def made(jobs):
    return Board(jobs.store, jobs.datasets)


def test_figures_are_sums_over_the_labels_not_given(registry):
    calls = Counter("khot_requests", "", ["method", "code"], registry=registry)
    calls.labels("Relax", "OK").inc(3)
    calls.labels("Relax", "CANCELLED").inc(2)
    calls.labels("Sample", "OK").inc(1)
    figures = Figures(registry)
    assert figures.total("khot_requests_total") == 6
    assert figures.total("khot_requests_total", method="Relax") == 5
    assert figures.total("khot_requests_total", method="Stream") is None
    assert figures.total("khot_nothing") is None


def test_names_are_the_labels_of_what_is_not_zero(registry):
    info = Gauge("khot_engine_info", "", ["device"], registry=registry)
    for device, value in (("mps", 0), ("cuda", 1), ("cpu", 1)):
        info.labels(device).set(value)
    assert Figures(registry).names("khot_engine_info", "device") == ["cpu", "cuda"]


def test_a_running_job_has_its_course(made, jobs):
    jobs.running(losses=[3.0, 2.0, 1.5], total_steps=120)
    (one,) = made.jobs("local").running.shown
    course = one.course
    assert (course.done, course.epoch, course.stage, course.left_s) == (0.25, 2, "selection", 90.0)
    assert (course.loss, course.line.first, course.line.last) == (1.5, 3.0, 1.5)


def test_a_job_that_told_nothing_yet_has_no_course(made, jobs):
    jobs.running()
    (one,) = made.jobs("local").running.shown
    assert one.course is None


def test_what_was_not_a_number_is_left_out_of_the_line(made, jobs):
    jobs.running(losses=[3.0, nan, inf, 1.0, nan])
    course = made.jobs("local").running.shown[0].course
    assert course.loss == 1.0
    assert course.line.line.count("L") == 1 and "nan" not in course.line.line  # two points


def test_of_a_long_course_the_last_steps_are_read(made, jobs, monkeypatch):
    monkeypatch.setattr(board, "LOSS_STEPS", 100)
    jobs.running(losses=[9.0] * 50 + [2.0] + [1.0] * 9, total_steps=1000)
    line = made.jobs("local").running.shown[0].course.line
    assert (line.first, line.last, line.line.count("L")) == (2.0, 1.0, 9)


def test_a_result_has_its_pictures_the_telling_one_first(made, jobs):
    jobs.succeeded(names="abcdefgh")
    (one,) = made.jobs("local").results.shown
    assert one.pictures == ("inclusion.png", "curves.png")
    assert one.report == "report.html"
    assert one.finding.chosen == "8 of 64 columns"
    assert one.finding.names == ("a", "b", "c", "d", "e")
    assert one.finding.measures == (("accuracy", "0.923"), ("loss", "0.250"))


def test_a_result_whose_files_are_gone_is_still_shown(made, jobs):
    jobs.succeeded(files={})
    (one,) = made.jobs("local").results.shown
    assert (one.pictures, one.report) == ((), "")


def test_a_result_is_read_once(made, jobs, monkeypatch):
    job = jobs.succeeded()
    first = made.jobs("local")
    read = []
    monkeypatch.setattr(jobs.store, "get", lambda *asked: read.append(asked))
    assert made.jobs("local") == first
    assert read == []
    jobs.store.delete("local", job)
    assert made.jobs("local").results.shown == []


def test_a_job_deleted_between_two_reads_is_left_out(made, jobs, monkeypatch):
    job, page = jobs.succeeded(), jobs.store.page

    def deleting(*args, **kwargs):
        found = page(*args, **kwargs)
        if found[0]:
            jobs.store.delete("local", job)
        return found

    monkeypatch.setattr(jobs.store, "page", deleting)
    assert made.jobs("local").results.shown == []


def test_of_many_jobs_the_latest_are_shown(made, jobs):
    sorts = (
        ("failures", board.MOST_FAILURES, lambda n: jobs.failed("x", dataset=f"d{n}")),
        ("results", board.MOST_RESULTS, lambda n: jobs.succeeded(files={}, dataset=f"d{n}")),
        ("running", board.MOST_RUNNING, lambda n: jobs.running(dataset=f"d{n}")),
        ("waiting", board.MOST_WAITING, lambda n: jobs.queued(dataset=f"d{n}")),
    )
    for name, most, make in sorts:
        for number in range(most + 2):
            make(number)
        some = getattr(made.jobs("local"), name)
        shown = [one.dataset for one in some.shown]
        assert shown == [f"d{number}" for number in reversed(range(2, most + 2))], name
        assert some.more
    assert not made.jobs("nobody").waiting.more

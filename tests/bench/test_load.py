"""The load benchmark: its arithmetic, its reading of others' output, and that it all runs."""

import csv
import importlib
import math
import os
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

HERE = Path(__file__).parent
SVG = "{http://www.w3.org/2000/svg}"
H2LOAD = """\
progress: 100% done

finished in 25.50ms, 784.19 req/s, 2.47MB/s
requests: {total} total, 3 started, 3 done, 3 succeeded, {failed} failed, 0 errored, 0 timeout
status codes: 3 2xx, 0 3xx, 0 4xx, 0 5xx
"""
LOG = "1000000\t200\t2000\n1000500\t200\t4000\n1003000\t200\t500\n"


@pytest.fixture(scope="module")
def load():
    """The module `load_<name>`, imported as a script beside it would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        yield lambda name: importlib.import_module(f"load_{name}")


@pytest.fixture(scope="module")
def runs(load):
    return load("runs")


@pytest.mark.parametrize(
    ("values", "share", "wanted"),
    [
        ([5.0], 0.99, 5.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        (range(1, 101), 0.5, 50),
        (range(1, 101), 0.99, 99),
        (range(1, 101), 1.0, 100),
        (range(1, 101), 0.0, 1),
    ],
)
def test_a_percentile_is_one_of_the_values(runs, values, share, wanted):
    assert runs.percentile(values, share) == wanted


def test_nothing_has_no_percentile(runs):
    assert math.isnan(runs.percentile([], 0.5))


def test_a_ratio_is_taken_within_each_round(runs):
    """The machine was three times slower in the second round, for both."""
    assert runs.median_ratio([60.0, 20.0, 70.0], [100.0, 33.0, 100.0]) == (20 / 33, 0.6, 0.7)


def test_a_schedule_does_not_wait_for_answers(runs):
    phases = [runs.Phase("a", 4.0, 1.0), runs.Phase("rest", 0.0, 0.5), runs.Phase("b", 2.0, 1.0)]
    assert list(runs.schedule(phases)) == [0.0, 0.25, 0.5, 0.75, 1.5, 2.0]


def test_calls_are_split_by_the_phase_they_were_meant_for(runs):
    phases = [runs.Phase("a", 3.0, 1.0), runs.Phase("rest", 0.0, 1.0), runs.Phase("b", 3.0, 1.0)]
    calls = [runs.Call(at, 5.0, 9.0, "OK") for at in runs.schedule(phases)]
    assert [len(part) for part in runs.split(calls, phases)] == [3, 0, 3]


@pytest.mark.parametrize(
    ("slower", "code", "wanted"),
    [(0.0, "OK", True), (0.3, "OK", False), (0.0, "RESOURCE_EXHAUSTED", False)],
)
def test_a_rate_is_kept_up_with_if_nothing_fails_and_nothing_piles_up(runs, slower, code, wanted):
    phase = runs.Phase("a", 100.0, 1.0)
    calls = [runs.Call(at, 0.0, 0.05 + slower * at, "OK") for at in runs.schedule([phase])]
    calls[50] = runs.Call(0.5, 0.0, 0.05, code)
    assert runs.sustained(calls[::-1]) is wanted


def test_a_burst_is_over_when_its_last_call_is_answered(runs):
    calls = [runs.Call(0.0, 0.0, 0.1, "OK"), runs.Call(0.9, 0.0, 1.5, "OK")]
    assert runs.drained_s(calls, 1.0) == pytest.approx(1.4)
    assert runs.drained_s([], 1.0) == 0.0


def test_a_run_of_h2load_is_read_from_its_log(runs):
    run = runs.from_h2load(H2LOAD.format(total=3, failed=0), LOG)
    assert run.latencies_s == [0.002, 0.004, 0.0005]
    assert run.seconds == pytest.approx(0.0045)  # from the first start to the last end
    assert run.rate == pytest.approx(3 / 0.0045)


@pytest.mark.parametrize(
    ("output", "log", "match"),
    [
        (H2LOAD.format(total=4, failed=1), LOG, "all requests must succeed; got 'requests: 4"),
        (H2LOAD.format(total=3, failed=0), LOG.replace("200", "503"), "3 lines of 200"),
        (H2LOAD.format(total=3, failed=0), "", "must have 3 lines of 200; got 0"),
        ("h2load: no such host", LOG, "must have a line of requests; got 'h2load: no"),
    ],
)
def test_a_run_of_h2load_that_failed_is_refused(runs, output, log, match):
    with pytest.raises(ValueError, match=match):
        runs.from_h2load(output, log)


def test_a_message_is_framed_as_grpc_does(runs):
    assert runs.framed(b"abc") == b"\0\0\0\0\3abc"


@pytest.mark.parametrize("number", [1, 127, 128, 300, 1 << 40])
def test_stream_messages_made_by_hand_are_messages(runs, number):
    """Field 1 a varint, field 2 the bytes as they are: read back by protobuf itself."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="load_test.proto", package="load_test")
    fields = file.message_type.add(name="Request").field
    fields.add(name="id", number=1, type="TYPE_UINT64", label="LABEL_OPTIONAL")
    fields.add(name="relax", number=2, type="TYPE_BYTES", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request = message_factory.GetMessageClass(pool.FindMessageTypeByName("load_test.Request"))
    made = runs.stream_request(number, b"x" * 200)
    assert request.FromString(made) == request(id=number, relax=b"x" * 200)
    assert runs.stream_id(request(id=number, relax=b"y").SerializeToString()) == number


def test_a_response_without_an_id_is_refused(runs):
    with pytest.raises(ValueError, match="must begin with its id"):
        runs.stream_id(b"\x12\x00")


def test_stages_are_read_by_the_names_of_their_fields(runs):
    from khot_proto.v1.khot_service_pb2 import Timing

    found = runs.stages(Timing(queue_ns=1_500_000, batch_rows=7))
    assert found["queue ms"] == 1.5 and found["batch rows"] == 7 and found["compute ms"] == 0


def test_medians_are_taken_over_the_rows_that_have_the_column(runs):
    assert runs.medians([{"a": 1.0}, {"a": 3.0, "b": 5.0}, {"a": 2.0}]) == {"a": 2.0, "b": 5.0}


def test_only_what_was_counted_since_is_told(runs):
    before, after = {"OK": 10, "ABORTED": 2, "UNKNOWN": 0}, {"OK": 15, "ABORTED": 2, "UNKNOWN": 1}
    assert runs.counted(before, after) == {"OK": 5, "UNKNOWN": 1}


def test_counters_are_read_by_method_and_code(runs):
    text = (
        "# TYPE khot_requests_total counter\n"
        'khot_requests_total{code="OK",method="Relax"} 12.0\n'
        'khot_requests_total{method="Relax",code="UNAVAILABLE"} 1.0\n'
        'khot_requests_total{code="OK",method="Sample"} 5.0\n'
    )
    assert runs.requests_by_code(text, "Relax") == {"OK": 12, "UNAVAILABLE": 1}


def test_a_process_is_read_whatever_its_name(load, tmp_path):
    """Its name is in brackets, and may hold both brackets and spaces."""
    watch = load("watch")
    fields = " ".join(["S", "1", *["0"] * 9, "250", "50", *["0"] * 20])
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(f"7 (py) th (on) {fields}\n")
    (tmp_path / "7/statm").write_text("1000 300 200 1 0 500 0\n")
    assert watch.cpu_s(7, tmp_path) == pytest.approx(300 * watch.TICK_S)
    assert watch.rss_bytes(7, tmp_path) == 300 * watch.PAGE


def test_the_busy_time_of_a_machine_leaves_idleness_out(load, tmp_path):
    watch = load("watch")
    (tmp_path / "stat").write_text("cpu  10 1 20 9999 5555 3 4 0 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n")
    assert watch.machine_busy_s(tmp_path) == pytest.approx((10 + 1 + 20 + 3 + 4) * watch.TICK_S)


def test_the_cpu_time_of_this_process_grows_and_is_that_of_its_threads(load):
    watch, me = load("watch"), os.getpid()
    # a process also has the time of threads that have ended
    before, of_ended = watch.cpu_s(me), watch.cpu_s(me) - sum(watch.thread_cpu_s(me).values())
    while watch.cpu_s(me) < before + 0.5:
        math.factorial(2000)
    threads = sum(watch.thread_cpu_s(me).values())
    assert threads + of_ended == pytest.approx(watch.cpu_s(me), abs=0.2)
    assert watch.rss_bytes(me) > 1 << 20


def test_a_meter_tells_a_known_process_from_all_others(load):
    watch = load("watch")
    program = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    for known in (True, False):
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with watch.Meter({"child": [child.pid]} if known else {}, lambda: 0.0) as meter:
            child.stdout.readline()
        child.communicate("\n")
        if known:
            assert meter.usage.cpu_s["child"] >= 0.4
        else:
            assert meter.usage.elsewhere > 0 and "child" not in meter.usage.cpu_s


def test_quiet_rounds_count_and_all_do_where_there_are_few(load):
    closed, watch = load("closed"), load("watch")

    def sides(*elsewhere):
        usages = [watch.Usage({}, cores) for cores in elsewhere]
        return {"a": closed.Side("a", list(usages), usages, [[] for _ in usages])}

    assert closed.quiet_rounds(sides(0.0, 1.0, 0.05, 0.0)) == [0, 2, 3]
    assert closed.quiet_rounds(sides(0.0, 1.0, 0.05)) == [0, 1, 2]


def test_samples_are_counted_by_our_function_and_by_what_it_calls(load):
    stacks = {
        "/x/khot_server/api/app.py:main;/usr/lib/python3/asyncio/base.py:run": 1,
        "/v/site-packages/khot_server/a/b.py:f;/v/site-packages/numpy/core.py:g": 3,
        "/home/khot/.venv/lib/site-packages/grpc/aio.py:poll": 4,
    }
    profile = load("profile")
    assert profile.shares(stacks, called=False)[1] == {"%": 37.5, "ours": "a/b.py:f"}
    assert profile.shares(stacks, called=True) == [
        {"%": 50.0, "ours": "-", "in": "grpc/aio.py:poll"},
        {"%": 37.5, "ours": "a/b.py:f", "in": "numpy/core.py:g"},
        {"%": 12.5, "ours": "api/app.py:main", "in": "asyncio/base.py:run"},
    ]


def test_the_picture_shows_every_load_and_stays_on_its_card(load):
    picture = load("picture")
    seen = [picture.Seen(r, 0.01, 0.03, 0.0) for r in (50.0, 100.0, 200.0)]
    seen.append(picture.Seen(1000.0, 0.9, 1.4, 0.8))
    drawn = ElementTree.fromstring(picture.svg(seen, 200.0, 0.75, "work"))
    _, _, width, height = map(float, drawn.get("viewBox").split())
    lines = drawn.findall(f"{SVG}polyline")
    assert len(lines) == 2
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) == len(seen)
        assert all(0 < x < width and 0 < y < height for x, y in points)
    bars = [rect for rect in drawn.findall(f"{SVG}rect") if rect.get("fill") == picture.RED]
    assert [float(bar.get("height")) > 0 for bar in bars] == [False, False, False, True]
    texts = {text.text for text in drawn.findall(f"{SVG}text")}
    assert {"1x", "200/s", "5x", "1000/s"} <= texts


@pytest.mark.slow
@pytest.mark.timeout(240)  # a score of short runs, and it shares the cores with other tests
def test_load_benchmark_runs(tmp_path, monkeypatch):
    out, picture = tmp_path / "out", tmp_path / "picture.svg"
    script = HERE / "load_grpc.py"
    command = [str(script), "--smoke", "--out", str(out), "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.syspath_prepend(str(HERE))  # as for a script
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    assert {file.stem for file in out.iterdir()} == {"load_closed", "load_overload", "load_musts"}
    assert picture.read_text().startswith("<svg")
    tables = {}
    for file in out.iterdir():
        with file.open() as lines:
            tables[file.stem] = list(csv.DictReader(lines))
    sides = [(row["side"], float(row["served"]) > 0) for row in tables["load_closed"]]
    assert sides[:8] == [("ours", True), ("echo", True)] * 4
    assert any(row["phase"] == "5x" for row in tables["load_overload"])
    assert all(row["commit"] and row["must"] for row in tables["load_musts"])


@pytest.mark.slow
@pytest.mark.xdist_group("servers")
def test_profile_runs(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(HERE / "load_grpc.py"), "--smoke", "--profile"])
    monkeypatch.syspath_prepend(str(HERE))
    runpy.run_path(str(HERE / "load_grpc.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "load_profile_api" in shown and "load_profile_engine" in shown


@pytest.mark.slow
@pytest.mark.timeout(240)  # two API processes and their engines load
@pytest.mark.xdist_group("servers")
def test_metrics_benchmark_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["load_metrics.py", "--smoke", "--out", str(tmp_path)])
    monkeypatch.syspath_prepend(str(HERE))
    runpy.run_path(str(HERE / "load_metrics.py"), run_name="__main__")
    with (tmp_path / "metrics.csv").open() as lines:
        (row,) = csv.DictReader(lines)
    assert float(row["ratio"]) > 0 and row["series"] == row["series_10_jobs_later"]

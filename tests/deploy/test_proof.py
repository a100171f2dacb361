"""The proof: a real Prometheus scrapes a real server under load, and every panel has true data."""

import json
import math
import shutil
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import wait_until
from promql import Series as Asked
from promql import parse, series, walk
from scene import Scene, staged
from traffic import FLAGS, RELAXED, Done, N, be_refused, serve, train, watching
from watch.alerts import ALERTS
from watch.recording import RECORDS

from khot_server.metrics.definitions import BY_NAME
from khot_server.metrics.memory import memory

pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus"),
    pytest.mark.xdist_group("proof"),  # they share one server
    pytest.mark.timeout(300),  # of which nearly all is that server's life
]

DEPLOY = Path(__file__).parents[2] / "deploy"
WINDOW_S = 300  # of rates: all that has happened
SCRAPES = f'count_over_time(up{{job="khot"}}[{WINDOW_S}s])'
FILES = sorted(DEPLOY.glob("grafana/dashboards/*.json"))
PANELS = {
    f"{path.stem}: {panel['title']}": panel
    for path in FILES
    for panel in json.loads(path.read_text())["panels"]
    if panel["type"] != "row"
}
# What this machine cannot show.
ABSENT = {
    "khot-resources: GPU memory": "no GPU",
    "khot-resources: GPU use": "no GPU",
}
ABSENT_METRICS = {"khot_gpu_memory_used_bytes", "khot_gpu_utilization_ratio"}


@pytest.fixture(scope="module")
def done() -> Done:
    """What the load did."""
    return Done()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, done: Done) -> Iterator[Scene]:
    """All of it has happened, Prometheus has seen it, and one job still runs and is watched."""
    with staged(tmp_path_factory.mktemp("proof"), *FLAGS) as scene:
        serve(scene.client, done)
        be_refused(scene.server, scene.client, done)
        train(scene.client, done, scene.folder)
        with watching(done.running):
            scene.prometheus.wait_until_scraped(time.time())
            # of fewer, rates are mostly extrapolation
            wait_until(lambda: scene.prometheus.value(SCRAPES) >= 12, "a dozen scrapes")
            yield scene
        done.running.cancel()


def filled(expression: str, window_s: int = WINDOW_S) -> str:
    """The expression as Grafana sends it, for all servers and operators."""
    for name, value in {
        "__rate_interval": f"{window_s}s",
        "instance": ".*",
        "operator": ".*",
    }.items():
        expression = expression.replace(f"${name}", value)
    return expression


def shown(scene: Scene, name: str, label: str = "", target: int = 0) -> dict[str, float]:
    """What a panel shows, by a label."""
    expression = filled(PANELS[name]["targets"][target]["expr"])
    found = scene.prometheus.query(expression).items()
    return {dict(key).get(label, ""): value for key, value in found}


def has_data(scene: Scene, expression: str) -> bool:
    values = scene.prometheus.query(filled(expression)).values()
    return any(math.isfinite(value) for value in values)


# Every expression.


@pytest.mark.parametrize("name", [name for name in PANELS if name not in ABSENT])
def test_every_panel_has_data(scene, name):
    for target in PANELS[name]["targets"]:
        assert has_data(scene, target["expr"]), target["expr"]


@pytest.mark.parametrize("name", ABSENT)
def test_what_this_machine_has_not_is_absent(scene, name):
    for target in PANELS[name]["targets"]:
        assert scene.prometheus.query(filled(target["expr"])) == {}


def test_a_misspelt_metric_has_no_data(scene):
    expression = PANELS["khot-serving: Rows served, by operator"]["targets"][0]["expr"]
    assert has_data(scene, expression)
    assert not has_data(scene, expression.replace("rows", "row"))


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDS], ids=lambda rule: rule.name)
def test_every_rule_asks_for_series_that_are_there(scene, rule):
    for asked in series(rule.expr):
        marks = ", ".join(f'{label}{mark}"{value}"' for label, mark, value in asked.matchers)
        assert scene.prometheus.query(f"{asked.name}{{{marks}}}"), asked


def test_every_value_that_a_matcher_names_is_there(scene):
    """A misspelt status, state or outcome would match nothing, and nobody would notice."""
    expressions = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
    expressions += [rule.expr for rule in (*ALERTS, *RECORDS)]
    for expression in expressions:
        for node in walk(parse(filled(expression))):
            if not isinstance(node, Asked) or node.name == "ALERTS":
                continue
            for label, _, value in node.matchers:
                known = scene.prometheus.get(f"label/{label}/values", **{"match[]": node.name})
                wanted = {value} if value == ".*" else set(value.split("|"))
                assert wanted <= {*known, ".*"}, f"{node.name}: {label}"


def test_every_metric_is_exported(scene):
    there = set(scene.prometheus.get("label/__name__/values"))
    lacking = {
        name
        for name, definition in BY_NAME.items()
        if (f"{name}_count" if definition.kind == "histogram" else name) not in there
    }
    assert lacking == ABSENT_METRICS


def test_rules_are_healthy_and_only_what_happened_fires(scene):
    """One job's loss was not finite; the others had ends that are nobody's fault."""
    rules = [rule for group in scene.prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {rule.name for rule in (*ALERTS, *RECORDS)}
    assert {rule["health"] for rule in rules} == {"ok"}, [rule.get("lastError") for rule in rules]
    firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
    assert firing == {"KhotLossNotFinite"}
    assert shown(scene, "khot-overview: Alerts firing") == {"": 1}


def test_a_scrape_is_clean(scene):
    with urllib.request.urlopen(f"{scene.server.metrics_url}/metrics", timeout=10) as page:
        text = page.read()
    command = ["promtool", "check", "metrics"]
    told = subprocess.run(command, input=text, capture_output=True, check=False)
    assert (told.returncode, told.stdout + told.stderr) == (0, b"")


# What the load did.


def agrees(scene: Scene, seen: dict[str, float], did: dict[str, float]) -> None:
    """What was seen to grow is what was done.

    Prometheus extrapolates growth towards the window's ends, by at most 1.1 of the mean time
    between two scrapes on each side.
    """
    assert {name for name, value in seen.items() if value} == {n for n, v in did.items() if v}
    scrapes = scene.prometheus.value(SCRAPES)
    for name, value in did.items():
        assert seen.get(name, 0) == pytest.approx(value, rel=2.2 / (scrapes - 1) + 0.01), name


def per_window(seen: dict[str, float]) -> dict[str, float]:
    return {name: value * WINDOW_S for name, value in seen.items()}


def test_rows_are_those_that_were_sent(scene, done):
    exact = scene.prometheus.by("operator", "khot_rows_total > 0")
    assert exact == done.rows
    for name in (
        "khot-serving: Rows served, by operator",
        "khot-overview: Rows served, by operator",
    ):
        agrees(scene, per_window(shown(scene, name, "operator")), done.rows)


def test_masks_are_those_that_were_drawn(scene, done):
    assert scene.prometheus.by("design", "khot_draws_total > 0") == done.draws
    seen = shown(scene, "khot-serving: Masks drawn, by design", "design")
    agrees(scene, per_window(seen), done.draws)


def test_calls_and_refusals_are_those_that_were_made(scene, done):
    for (method, code), times in done.calls.items():
        one = f'khot_requests_total{{method="{method}", code="{code}"}}'
        assert scene.prometheus.value(one) == times, one
    times: Counter[str] = Counter()
    for (method, _), number in done.calls.items():
        times[method] += number
    seen = per_window(shown(scene, "khot-serving: Calls by method", "method"))
    for method in ("Relax", "Sample"):
        agrees(scene, {method: seen[method]}, {method: times[method]})
        timed = f'khot_request_duration_seconds_count{{method="{method}"}}'
        assert scene.prometheus.value(timed) == times[method]
    codes = shown(scene, "khot-serving: Calls by code", "code")
    refused = {code for _, code in done.calls}
    assert refused <= codes.keys()
    assert shown(scene, "khot-overview: Calls that failed by our fault") == {"": 0}


def test_every_row_was_in_a_batch(scene, done):
    value = scene.prometheus.value
    assert value("khot_batch_rows_sum") == sum(done.rows.values())
    rows = sum(done.rows[operator] for operator in RELAXED) + sum(done.draws.values())
    assert value("khot_batch_scores_sum") == N * rows
    for part in ("rows", "scores"):
        panel = f"khot-serving: {part.capitalize()} of a batch, mean"
        exact = value(f"khot_batch_{part}_sum / khot_batch_{part}_count")
        assert shown(scene, panel) == {"": pytest.approx(exact)}


def test_jobs_end_as_they_did(scene, done):
    seen = scene.prometheus.query("khot_jobs_ended_total > 0")
    ends = {(dict(key)["kind"], dict(key)["outcome"]): value for key, value in seen.items()}
    assert ends == done.ended
    outcomes = {}
    for (_, outcome), times in done.ended.items():
        outcomes[outcome] = outcomes.get(outcome, 0) + times
    agrees(scene, shown(scene, "khot-training: Jobs ended, by outcome", "outcome"), outcomes)
    agrees(scene, shown(scene, "khot-training: Jobs submitted", "kind"), done.submitted)
    not_finite = shown(scene, "khot-training: Losses that were not finite", "kind")
    agrees(scene, not_finite, {"feature_selection": 1, "vae": 0})


def test_the_running_job_is_shown_and_no_other(scene, done):
    job = done.running.id
    for title in ("Progress of running jobs", "Since the last progress", "Loss of running jobs"):
        (seen,) = shown(scene, f"khot-training: {title}", "job_id").items()
        assert seen[0] == job and seen[1] >= 0
    assert shown(scene, "khot-overview: Jobs running") == {"": 1}


def test_roots_are_solved_as_the_library_says(scene, done):
    of = '{operator="sigmoid_topk", source="serving"}'
    value = scene.prometheus.value
    assert value(f"khot_root_iterations_sum{of}") == done.iterations
    assert value(f"khot_root_iterations_count{of}") == done.rows["sigmoid_topk"]
    assert value(f"khot_root_residual_count{of}") == done.rows["sigmoid_topk"]
    assert value(f"khot_root_fallback_rows_total{of}") == done.fallback > 0
    mean = done.iterations / done.rows["sigmoid_topk"]
    expression = PANELS["khot-solver: Iterations of a row, mean"]["targets"][0]["expr"]
    found = scene.prometheus.query(filled(expression)).items()
    (seen,) = (
        v for key, v in found if {("operator", "sigmoid_topk"), ("source", "serving")} <= key
    )
    assert seen == pytest.approx(mean, rel=1e-6)


def test_training_solves_roots_too(scene):
    trained = scene.prometheus.by("operator", 'khot_root_iterations_count{source="training"} > 0')
    assert trained and all(math.isfinite(value) for value in trained.values())


def test_bytes_are_those_of_the_files(scene, done):
    value = scene.prometheus.value
    assert value("khot_upload_bytes_total") == pytest.approx(done.uploaded, rel=0.05)
    assert value("khot_artifact_bytes_total") == pytest.approx(done.downloaded, rel=0.05)


def test_the_machine_is_this_one(scene):
    value = scene.prometheus.value
    assert value("khot_machine_memory_bytes") == memory().total
    disk = shutil.disk_usage(scene.folder / "state")
    assert value("khot_state_size_bytes") == disk.total
    assert value("khot_state_free_bytes") == pytest.approx(disk.free, rel=0.2)
    ends = scene.certificate.not_valid_after_utc.timestamp()
    assert value("khot_certificate_expiry_timestamp_seconds") == ends
    (left,) = shown(scene, "khot-resources: Certificate valid for").values()
    assert left == pytest.approx(ends - time.time(), abs=10)
    processes = shown(scene, "khot-resources: Memory, by process", "process")
    assert {"supervisor", "api", "engine", "runner", "nursery", "attempt"} == processes.keys()
    assert all(value > 1e6 for value in processes.values()), processes

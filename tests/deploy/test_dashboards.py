"""The dashboards: as generated, complete, linked, and each unit what its expression measures."""

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from promql import series
from units import EVENTS, NOUNS, Unfit, check, check_unit
from watch.alerts import ALERTS
from watch.dashboards import DASHBOARDS
from watch.recording import RECORDS

from khot_server.metrics.definitions import BY_NAME

DEPLOY = Path(__file__).parents[2] / "deploy"
EXPRESSIONS = {record.name: record.expr for record in RECORDS}
FILES = {path.stem: json.loads(path.read_text()) for path in DEPLOY.glob("grafana/dashboards/*")}
PANELS = [
    pytest.param(panel, id=f"{page['uid']}: {panel['title']}")
    for page in FILES.values()
    for panel in page["panels"]
    if panel["type"] != "row"
]


def test_what_is_checked_in_is_what_is_generated():
    command = [sys.executable, DEPLOY / "generate.py", "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_there_are_the_five_dashboards():
    titles = [page.title for page in DASHBOARDS]
    assert titles == ["Overview", "Serving", "Solver", "Training", "Resources"]
    assert {page.uid for page in DASHBOARDS} == {*FILES}


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_says_what_it_shows(panel):
    assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
    assert re.fullmatch(r"[A-Z0-9].{20,}\.", panel["description"])
    assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
    many = len(panel["targets"]) > 1
    assert not many or all(t["legendFormat"] != "__auto" for t in panel["targets"])


@pytest.mark.parametrize("panel", PANELS)
def test_every_unit_fits_its_expression(panel):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    for target in panel["targets"]:
        check_unit(target["expr"], unit, EXPRESSIONS, buckets=panel["type"] == "heatmap")


def labels_of(name: str) -> tuple[str, ...]:
    """The labels by which a series is told apart; all have the instance too."""
    if name in EXPRESSIONS:
        return tuple(name.partition(":")[0].split("_"))
    found = BY_NAME.get(re.sub(r"_(bucket|sum|count)$", "", name)) or BY_NAME.get(name)
    return found.labels if found else ()


@pytest.mark.parametrize("name", FILES)
def test_every_series_is_of_the_chosen_servers_and_operators(name):
    """But the alerts, which are of all."""
    variables = {variable["name"] for variable in FILES[name]["templating"]["list"]}
    for panel in FILES[name]["panels"]:
        for asked in chain.from_iterable(series(t["expr"]) for t in panel.get("targets", ())):
            chosen = {label for label, _, value in asked.matchers if value == f"${label}"}
            wanted = {"instance", *labels_of(asked.name)} & variables
            assert asked.name == "ALERTS" or chosen == wanted, f"{panel['title']}: {asked}"


@pytest.mark.parametrize("name", FILES)
def test_panels_do_not_overlap(name):
    taken = set()
    for panel in FILES[name]["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in FILES[name]["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", FILES)
def test_dashboards_lead_to_each_other(name):
    page = FILES[name]
    (link,) = page["links"]
    assert link["type"] == "dashboards" and link["tags"] == page["tags"] == ["khot"]
    assert link["includeVars"] and link["keepTime"]
    for panel in page["panels"]:
        for more in panel.get("links", ()):
            assert more["url"].removeprefix("/d/").partition("?")[0] in FILES.keys() - {name}


@pytest.mark.parametrize("name", FILES)
def test_variables_are_used_and_there(name):
    page = FILES[name]
    there = {variable["name"] for variable in page["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(page["panels"])))
    assert used == there
    assert {"datasource", "instance"} <= there


def test_every_metric_is_shown_somewhere():
    """By a panel, or by a recorded expression (which panels and alerts are there for)."""
    shown = [target["expr"] for panel in PANELS for target in panel.values[0]["targets"]]
    asked = {each.name for expr in (*shown, *EXPRESSIONS.values()) for each in series(expr)}
    whole = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    assert BY_NAME.keys() - whole == set()


def test_every_metric_has_a_unit():
    assert NOUNS.keys() <= BY_NAME.keys()
    assert EVENTS.keys() == {name for name, d in BY_NAME.items() if d.kind == "histogram"}


@pytest.mark.parametrize("rule", [*RECORDS, *ALERTS], ids=lambda rule: rule.name)
def test_every_rule_makes_sense(rule):
    check(rule.expr, EXPRESSIONS)


PLANTED = {
    "a misspelt metric": ("sum(rate(khot_row_total[5m]))", "si:rows/s", "must be a metric"),
    "a misspelt label": (
        "sum by (operators) (rate(khot_rows_total[5m]))",
        "si:rows/s",
        "labels must be among .*; got \\['operators'\\]",
    ),
    "another metric's label": ('khot_jobs{method="Relax"}', "short", "labels must be among"),
    "rows as calls": ("sum(rate(khot_rows_total[5m]))", "reqps", "got {'row': 1, 'second': -1}"),
    "rows a second as rows": ("sum(rate(khot_rows_total[5m]))", "short", "must have unit 'short'"),
    "rows as rows a second": ("sum(increase(khot_rows_total[5m]))", "si:rows/s", "got {'row': 1}"),
    "bytes as seconds": ("khot_state_free_bytes", "s", "got {'byte': 1}"),
    "seconds as a share": (
        "time() - khot_job_last_progress_timestamp_seconds",
        "percentunit",
        "got {'second': 1}",
    ),
    "milliseconds as seconds": (
        "1000 * (time() - khot_job_last_progress_timestamp_seconds)",
        "s",
        "got {'second': 1}, times 1000",
    ),
    "a share of rows by calls": (
        "sum(rate(khot_rows_total[5m])) / sum(rate(khot_requests_total[5m]))",
        "percentunit",
        "got {'row': 1, 'request': -1}",
    ),
    "percent as a share": (
        "100 * khot_state_free_bytes / khot_state_size_bytes",
        "percentunit",
        "got {}, times 100",
    ),
    "a share as a count": ("khot_state_free_bytes / khot_state_size_bytes", "short", "got {}"),
    "a counter as it is": ("sum(khot_rows_total)", "short", "a counter must be in a rate"),
    "the rate of a gauge": ("rate(khot_engine_up[5m])", "short", "a gauge must not be in a rate"),
    "a sum of two units": ("khot_state_free_bytes + khot_engine_up", "bytes", "the same units"),
    "a quantile over le": (
        "histogram_quantile(0.9, sum(rate(khot_queue_wait_seconds_bucket[5m])))",
        "s",
        "must be summed by le",
    ),
    "a quantile of bytes as seconds": (
        "histogram_quantile(0.9, sum by (le) (rate(khot_request_message_bytes_bucket[5m])))",
        "s",
        "got {'byte': 1}",
    ),
    "a histogram without its part": (
        "sum(rate(khot_queue_wait_seconds[5m]))",
        "s",
        "must be a metric",
    ),
    "an unknown function": ("deriv(khot_state_free_bytes[5m])", "Bps", "whose unit is known"),
}


@pytest.mark.parametrize(("expression", "unit", "complaint"), PLANTED.values(), ids=PLANTED)
def test_a_planted_mistake_is_found(expression, unit, complaint):
    with pytest.raises(Unfit, match=complaint):
        check_unit(expression, unit, EXPRESSIONS)


def test_a_heatmap_in_the_unit_of_its_counts_is_found():
    expression = "sum by (le) (increase(khot_queue_wait_seconds_bucket[5m]))"
    check_unit(expression, "s", EXPRESSIONS, buckets=True)
    with pytest.raises(Unfit, match="must have unit 'short'"):
        check_unit(expression, "short", EXPRESSIONS, buckets=True)

"""The alerts: each fires on what it is for and on nothing less, and leads to what helps."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from promql import Binary, parse, series
from typer.main import get_command
from watch.alerts import ALERTS
from watch.dashboards import DASHBOARDS

from khot_client.cli import app
from khot_server.config import Settings

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = sorted(DEPLOY.glob("prometheus/rules/*.yml"))
HERE = {"instance": "a:9551"}


@dataclass(frozen=True)
class Case:
    """Series that make an alert fire, and such that do not.

    Attributes:
        fires: values by series, in promtool's words: start+step x times.
        at: when to look.
        labels: of the alert that fires, beside the instance.
        summary: what it says.
        quiet: values that are nearly as bad, or as bad but not for long enough.
    """

    fires: dict[str, str]
    at: str
    summary: str
    quiet: dict[str, str]
    labels: dict[str, str]


def case(fires, at, summary, quiet, **labels) -> Case:
    return Case(fires, at, summary, quiet, HERE | labels)


def calls(code: str) -> str:
    return f'khot_requests_total{{instance="a:9551", method="Sample", code="{code}"}}'


def duration(bound: str) -> str:
    labels = f'instance="a:9551", method="Sample", le="{bound}"'
    return f"khot_request_duration_seconds_bucket{{{labels}}}"


def root(name: str) -> str:
    return f'{name}{{instance="a:9551", operator="sigmoid_topk", source="serving"}}'


def alone(name: str) -> str:
    return f'{name}{{instance="a:9551"}}'


UP = 'up{instance="a:9551", job="khot"}'
JOB = 'khot_job_last_progress_timestamp_seconds{instance="a:9551", job_id="7", kind="vae"}'
ENDED = 'khot_jobs_ended_total{{instance="a:9551", kind="vae", outcome="{}"}}'
NOT_FINITE = 'khot_nan_losses_total{instance="a:9551", kind="vae"}'

CASES = {
    "KhotDown": case(
        {UP: "1 0x10"},
        "3m",
        "Prometheus cannot scrape khot at a:9551.",
        {UP: "1x2 0 1x10"},
        job="khot",
    ),
    "KhotNoEngine": case(
        {alone("khot_engine_up"): "0x10"},
        "1m",
        "khot at a:9551 has no engine.",
        {alone("khot_engine_up"): "1 0 1x10"},
    ),
    "KhotEngineLosses": case(
        {alone("khot_engine_losses_total"): "0x5 1x5 4x10"},
        "16m",
        "khot at a:9551 lost 4 engines in 15 min.",
        {alone("khot_engine_losses_total"): "0x5 1x20"},
    ),
    "KhotErrorRatio": case(
        {calls("OK"): "0+96x30", calls("INTERNAL"): "0+4x30"},
        "15m",
        "4% of the calls to khot at a:9551 fail by its own fault.",
        {calls("OK"): "0+986x30", calls("INTERNAL"): "0+14x30", calls("NOT_FOUND"): "0+500x30"},
    ),
    "KhotLatencyP99": case(
        {duration("0.5"): "0+80x40", duration("1"): "0+100x40", duration("+Inf"): "0+100x40"},
        "20m",
        "One in a hundred Sample calls to khot at a:9551 takes longer than 975ms.",
        {duration("0.5"): "0+100x40", duration("1"): "0+100x40", duration("+Inf"): "0+100x40"},
        method="Sample",
    ),
    "KhotQueueNearLimit": case(
        {alone("khot_queue_scores"): "90x10", alone("khot_queue_limit_scores"): "100x10"},
        "3m",
        "The queue of khot at a:9551 is 90% full.",
        {alone("khot_queue_scores"): "70x10", alone("khot_queue_limit_scores"): "100x10"},
    ),
    "KhotRootsNotConverged": case(
        {root("khot_root_nonconverged_rows_total"): "0x5 2x15"},
        "15m",
        "2 rows of sigmoid_topk (serving) at a:9551 did not reach the solver's tolerance.",
        {root("khot_root_nonconverged_rows_total"): "2x20"},
        operator="sigmoid_topk",
        source="serving",
    ),
    "KhotFallbackShare": case(
        {
            root("khot_root_fallback_rows_total"): "0+10x30",
            root("khot_root_iterations_count"): "0+100x30",
        },
        "20m",
        "10% of the rows of sigmoid_topk (serving) at a:9551 needed bisection.",
        {
            root("khot_root_fallback_rows_total"): "0+4x30",
            root("khot_root_iterations_count"): "0+100x30",
        },
        operator="sigmoid_topk",
        source="serving",
    ),
    "KhotJobStuck": case(
        {JOB: "60x30"},
        "18m",
        "Job 7 (vae) at a:9551 has made no progress for 17m 0s.",
        {JOB: "240x30"},
        job_id="7",
        kind="vae",
    ),
    "KhotJobFailures": case(
        {ENDED.format("out_of_memory"): "0x10 1x60"},
        "60m",
        "Jobs (vae) that failed at a:9551 within an hour as out_of_memory: 1.",
        {ENDED.format("user_error"): "0x10 5x60", ENDED.format("internal"): "3x60"},
        kind="vae",
        outcome="out_of_memory",
    ),
    "KhotLossNotFinite": case(
        {NOT_FINITE: "0x10 1x60"},
        "60m",
        "Jobs (vae) at a:9551 whose loss was not finite, within an hour: 1.",
        {NOT_FINITE: "1x60"},
        kind="vae",
    ),
    "KhotMemory": case(
        {
            alone("khot_machine_memory_available_bytes"): "5x20",
            alone("khot_machine_memory_bytes"): "100x20",
        },
        "10m",
        "The machine of a:9551 has 5% of its memory left.",
        {
            alone("khot_machine_memory_available_bytes"): "15x6 5x13",
            alone("khot_machine_memory_bytes"): "100x20",
        },
    ),
    "KhotDisk": case(
        {alone("khot_state_free_bytes"): "9x20", alone("khot_state_size_bytes"): "100x20"},
        "10m",
        "The disk of the state directory of a:9551 has 9% left.",
        {alone("khot_state_free_bytes"): "11x20", alone("khot_state_size_bytes"): "100x20"},
    ),
    "KhotCertificateExpiry": case(
        {alone("khot_certificate_expiry_timestamp_seconds"): "867600x70"},
        "1h",
        "The certificate of khot at a:9551 expires in 10d 0h 0m 0s.",
        {alone("khot_certificate_expiry_timestamp_seconds"): "1300000x70"},
    ),
}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def group(name: str, series: dict[str, str], at: str, expected: list[dict]) -> dict:
    """A test of promtool: what of this alert is firing then."""
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [{"alertname": name, "eval_time": at, "exp_alerts": expected}],
    }


def ran(path: Path, *groups: dict) -> subprocess.CompletedProcess[str]:
    # JSON is YAML too
    path.write_text(json.dumps({"rule_files": [*map(str, RULES)], "tests": groups}))
    return promtool("test", "rules", path)


def expected(name: str) -> dict:
    """The alert, as it is sent."""
    (alert,) = (alert for alert in ALERTS if alert.name == name)
    (page,) = (page for page in DASHBOARDS if page.uid == alert.dashboard)
    told = alert.annotations(page.panel_path(alert.panel)) | {"summary": CASES[name].summary}
    labels = CASES[name].labels | {"severity": alert.severity}
    return {"exp_labels": labels, "exp_annotations": told}


def test_every_alert_has_both_cases():
    assert [alert.name for alert in ALERTS] == [*CASES]
    assert all(case.fires and case.quiet for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_fires_on_what_it_is_for(name, tmp_path):
    case = CASES[name]
    done = ran(tmp_path / "case.json", group(name, case.fires, case.at, [expected(name)]))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_is_quiet_on_anything_less(name, tmp_path):
    case = CASES[name]
    done = ran(tmp_path / "case.json", group(name, case.quiet, case.at, []))
    assert done.returncode == 0, done.stdout + done.stderr


def test_is_told_when_there_is_no_target_at_all(tmp_path):
    told = expected("KhotDown") | {"exp_labels": {"job": "khot", "severity": "critical"}}
    told["exp_annotations"] |= {"summary": "Prometheus cannot scrape khot."}
    done = ran(tmp_path / "case.json", group("KhotDown", {"up": "1x10"}, "3m", [told]))
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_configuration_are_clean():
    for what in (("rules", *RULES), ("config", DEPLOY / "prometheus/prometheus.yml")):
        done = promtool("check", *what)
        assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr
        assert not re.search("warning|duplicate", done.stdout + done.stderr, re.IGNORECASE)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_leads_to_its_panel_and_its_line_of_the_runbook(alert):
    rules = (DEPLOY / "prometheus/rules/alerts.yml").read_text()
    (rule,) = re.findall(rf"- alert: {alert.name}\n.*?(?=\n      - alert|\Z)", rules, re.DOTALL)
    uid, number = re.search(r'dashboard_url: "/d/([a-z-]+)\?viewPanel=(\d+)"', rule).groups()
    page = json.loads((DEPLOY / f"grafana/dashboards/{uid}.json").read_text())
    (panel,) = (panel for panel in page["panels"] if panel["id"] == int(number))
    assert panel["title"] == alert.panel
    file, anchor = re.search(r'runbook_url: "(\S+)#(\S+)"', rule).groups()
    lines = (DEPLOY.parent / file).read_text().splitlines()
    (line,) = (line for line in lines if f'<a id="{anchor}"></a>' in line)
    assert alert.name in line and alert.action in line and f": {panel['title']} |" in line


def names(*expressions: str) -> set[str]:
    """The series that are asked for."""
    return {asked.name for expression in expressions for asked in series(expression)}


def shown_by(panel: dict) -> set[str]:
    return names(*(target["expr"] for target in panel["targets"]))


def lines_of(panel: dict) -> list[float]:
    """Where a graph has dashed lines."""
    if panel["type"] != "timeseries":
        return []
    return [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]


def threshold(expression: str) -> float:
    match parse(expression):
        case Binary(mark=">" | "<", right=limit):
            # where any is too many, the line is at one
            return limit.value or 1


PANELS = {
    (page["uid"], panel["title"]): panel
    for page in map(json.loads, (path.read_text() for path in DEPLOY.glob("grafana/dashboards/*")))
    for panel in page["panels"]
    if panel["type"] != "row"
}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_its_panel_shows_what_it_looks_at_with_a_line_where_it_fires(alert):
    panel = PANELS[alert.dashboard, alert.panel]
    assert names(alert.expr) <= shown_by(panel)
    assert not lines_of(panel) or lines_of(panel) == [threshold(alert.expr)]


@pytest.mark.parametrize("place", [place for place in PANELS if lines_of(PANELS[place])], ids=str)
def test_a_dashed_line_is_where_an_alert_fires(place):
    about = [alert for alert in ALERTS if names(alert.expr) <= shown_by(PANELS[place])]
    assert lines_of(PANELS[place]) == [threshold(alert.expr) for alert in about]


def test_settings_and_commands_that_are_named_exist():
    said = [alert.action for alert in ALERTS]
    said += [panel["description"] for panel in PANELS.values()]
    flags = {flag for text in said for flag in re.findall(r"--([a-z-]+)", text)}
    assert flags and flags <= {name.replace("_", "-") for name in Settings.model_fields}
    commands = {tuple(c.split()) for text in said for c in re.findall(r"`khot ([a-z ]+)`", text)}
    known = {
        (name, below)
        for name, command in get_command(app).commands.items()
        for below in getattr(command, "commands", ())
    }
    assert commands and commands <= known

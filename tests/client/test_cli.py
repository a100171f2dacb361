"""The `khot` command: what it says of itself, the serving side, and what concerns this machine."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import commands, run

import khot_client
from khot_client.cli import faults, machine
from khot_client.cli.submit import CHOICES

COMMANDS = {name: (examples, options) for name, examples, options in commands()}
HERE = {"up", "token new", "info"}  # they call no server


@pytest.fixture
def ask(server):
    """Run a command against the server."""

    def asked(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        return run(*arguments, stdin=stdin, KHOT_ADDRESS=server)

    return asked


def test_version():
    assert run("--version") == (0, f"khot {khot_client.__version__}\n", "")


def test_without_a_command_it_teaches():
    _, out, err = run()
    for word in ("Usage", "up", "sample", "submit", "jobs", "info", "Start a server", "Exit codes"):
        assert word in out + err


def test_the_list_of_commands_is_whole():
    wanted = """up, status, sample, relax, operators, submit feature-selection, submit vae,
    submit sparse-regression, submit file, jobs, job show, job watch, job result, job plot,
    job logs, job download,
    job cancel, job pause, job resume, job retry, group show, group watch, group cancel,
    reproduce, data upload, data list, data show, data rm, token new, info"""
    assert set(COMMANDS) == {" ".join(name.split()) for name in wanted.split(",")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_in_its_help(name):
    code, out, _ = run(*name.split(), "--help")
    assert code == 0 and "Example: khot" in out
    assert COMMANDS[name][0]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - HERE))
def test_every_command_that_calls_a_server_has_the_shared_options(name):
    shared = {"--address", "--token", "--tls", "--ca", "--profile", "--timeout", "--json"}
    assert shared | {"--debug"} <= COMMANDS[name][1]


def test_every_field_of_a_spec_has_an_option():
    for spec, name in (
        (khot_client.FeatureSelection, "feature-selection"),
        (khot_client.Vae, "vae"),
        (khot_client.SparseRegression, "sparse-regression"),
    ):
        options = COMMANDS[f"submit {name}"][1]
        for field in (field.name for field in dataclasses.fields(spec)):
            assert {f"--{field.replace('_', '-')}", f"-{field}"} & options, field


def test_the_exit_codes_are_on_the_page_and_in_the_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run("--help")
    page = (Path(__file__).parents[2] / "client/README.md").read_text()
    for code, meaning in faults.MEANINGS.items():
        assert f"{code}  {meaning}" in out
        assert f"| {code} | {meaning} |" in page
    assert {*faults.EXIT_CODES.values()} < {*faults.MEANINGS}


def test_completion_can_be_shown():
    environment = {**os.environ, "_KHOT_COMPLETE": "complete_bash", "COMP_WORDS": "khot job pa"}
    command = [Path(sys.executable).with_name("khot")]
    done = subprocess.run(
        command,
        env=environment | {"COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.split() == ["pause"], done.stderr


def test_what_is_completed_is_what_the_server_has(client):
    known = {row.name for row in client.list_operators() if row.kind == "estimator"}
    assert set(CHOICES["estimator"]) == known
    assert set(CHOICES["dataset"]) == {d.id for d in client.datasets() if d.create_time is None}


def test_info_names_what_a_bug_report_needs():
    code, out, _ = run("info", "--json")
    assert code == 0
    assert {"python", "khot", "grpcio", "protobuf", "numpy", "torch"} == set(json.loads(out))


def test_info_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(machine, "_REPORTED", ("no-such-package",))
    assert "no-such-package\tnot installed" in run("info")[1]


def test_sample_prints_masks_with_k_ones(ask):
    code, out, err = ask("sample", "--n", "10", "-k", "3")
    assert code == 0 and sorted(out.split()) == ["0"] * 7 + ["1"] * 3
    (seed,) = re.findall(r"^seed (\d+)\n$", err)
    assert ask("sample", "--n", "10", "-k", "3", "--seed", seed) == (0, out, "")


def test_many_draws_of_a_row_are_many_lines(ask):
    _, out, _ = ask("sample", "--n", "4", "-k", "2", "--num-samples", "3", "--seed", "1")
    assert [line.split().count("1") for line in out.splitlines()] == [2, 2, 2]


def test_a_relaxed_draw_is_printed_as_it_is(ask):
    _, out, _ = ask("sample", "--n", "4", "-k", "2", "--operator", "softsub", "--seed", "1")
    assert sum(map(float, out.split())) == pytest.approx(2, abs=1e-4) and "." in out


def test_relax_prints_soft_values_of_the_arguments(ask):
    code, out, _ = ask("relax", "-k", "2", "--tau", "0.5", "--", "2.0", "1.0", "0.0", "-1.0")
    assert (code, out) == (0, "0.952574 0.731059 0.268941 0.047426\n")


def test_rows_are_read_from_standard_input(ask):
    code, out, _ = ask("sample", "-k", "1", "--seed", "1", stdin="9 0 0\n\n0 0 9\n")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and [row.count("1") for row in rows] == [1, 1]


def test_standard_input_without_a_row_is_told(ask):
    code, out, err = ask("relax", "-k", "1", stdin="\n")
    assert (code, out) == (1, "") and "or on standard input; got none" in err


def test_what_an_operator_does_not_promise_goes_unsaid(ask):
    _, out, _ = ask("operators", "--kind", "design")
    promises = {line.split("\t")[0]: line.split("\t")[3] for line in out.splitlines()}
    assert promises["pivotal"].startswith("exact, fixed_size, high_entropy, random, cost=O(n)")
    assert "exact" not in promises["pareto"] and "false" not in out


def test_tables_have_tabs_where_there_is_no_terminal(ask):
    code, out, _ = ask("operators", "--kind", "design")
    header, *rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and header == ["operator", "kind", "what it returns", "promises"]
    assert {row[1] for row in rows} == {"design"} and {len(row) for row in rows} == {4}
    assert "\x1b" not in out


def test_status_says_what_there_is(ask):
    code, out, _ = ask("status")
    assert code == 0 and "health\tserving\n" in out and "estimator=" in out
    facts = json.loads(ask("status", "--json")[1])
    assert facts["client"] == f"khot {khot_client.__version__}" and facts["data_sets"] >= 4


PRINTING = [
    "status",
    "operators",
    "jobs --limit 2",
    "data list",
    "data show digits",
    "sample -k 1 --n 3",
    "relax -k 1 --n 3",
    "submit feature-selection --validate",
]


@pytest.mark.parametrize("command", PRINTING)
def test_json_is_one_line_of_it(ask, command):
    code, out, err = ask(*command.split(), "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("sample --k 11 --n 10", 1, "khot: sigmoid_topk: k must be in"),
        ("sample -k 1 --n 10 --operator no", 1, "khot: operator: must be one of pivotal, "),
        ("sample -k 1 --n 3 -- 1.0", 1, "must come from --n or from arguments"),
        ("relax -k 1", 1, "must be lines of equally many numbers"),
        ("job show nope", 4, "Check the id"),
        ("job watch nope", 4, "Check the id"),
        ("job plot nope", 4, "Check the id"),
        ("group show nope", 4, "Check the id"),
        ("data show nope", 4, "Check the id"),
        ("submit feature-selection -k 64", 1, "must be less than 64"),
        ("submit feature-selection --hidden 3,x", 2, "such as 256,128; got '3,x'"),
        ("submit feature-selection --max-run-time soon", 2, "such as 90s, 10m or 1.5h"),
        ("submit feature-selection --seeds a", 2, "such as 0-4 or 1,2,7"),
        ("submit feature-selection --seeds 4-0", 2, "must go up, by less than 10000; got '4-0'"),
        ("submit feature-selection --seeds 0-9999999999", 2, "must go up, by less than 10000"),
        ("submit feature-selection --grid k=5 --grid k=7", 2, "each name once; got 'k' again"),
        ("submit feature-selection --label a", 2, "must be name=value; got 'a'"),
        ("submit feature-selection --grid epoch=1,2", 2, "Is 'epochs' meant?"),
        ("submit feature-selection --seeds 0-1 --validate", 2, "must be of one job"),
        ("submit feature-selection --dataset ./none.csv", 1, "none.csv"),
        ("submit -f none.toml", 2, "none.toml: must be a TOML file; got No such file"),
        ("jobs --state done", 1, "must be among QUEUED"),
        (
            "jobs --kind va",
            2,
            "must be among feature-selection, vae, sparse-regression; got 'va'. Is 'vae' meant?",
        ),
        ("operators --kind designs", 2, "Is 'design' meant?"),
        ("status --timeout nan", 2, "must be seconds above 0"),
        ("job show \udcff", 2, "arguments: must be UTF-8"),
        ("sample -k 1 --n 100000000000000", 1, "Ask for less at once"),
        ("data rm digits", 2, "must be told --yes"),
        ("operators --address nonsense", 2, "must be host:port"),
        ("operators --profile nope", 2, "must be a TOML file with profiles"),
        ("operators --ca /no/such/file", 2, "must be True or the path of a PEM file"),
        ("operators --address 127.0.0.1:1", 5, "`khot up` starts a server"),
        ("status --address 127.0.0.1:1", 5, "`khot up` starts a server"),
    ],
)
def test_errors_are_one_line_on_stderr(ask, arguments, code, message):
    got, out, err = ask(*arguments.split(), stdin="1 2\n3\n")
    assert (got, out) == (code, "")
    assert err.startswith("khot: ") and err.count("\n") == 1
    assert message in err


def test_debug_shows_where_it_came_from(ask):
    code, _, err = ask("job", "show", "nope", "--debug")
    assert code == 4 and "Traceback" in err and err.splitlines()[-1].startswith("khot: ")


def test_a_bad_option_is_told_with_the_usage(ask):
    code, _, err = ask("jobs", "--nope")
    assert code == 2 and "Usage: khot jobs" in err and "--nope" in err


def test_up_becomes_the_server(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append((path, arguments)))
    path = str(Path(sys.executable).parent / "khot-server")
    for more in (["--", "--device", "cpu"], ["--device", "cpu"]):
        assert run("up", "--address", "127.0.0.1:7", *more)[0] == 0
        assert started.pop() == (path, [path, "--address", "127.0.0.1:7", "--device", "cpu"])


@pytest.mark.parametrize("command", [("up",), ("token", "new", "--tenant", "a")], ids=str)
def test_without_a_server_it_says_how_to_install_one(monkeypatch, command):
    monkeypatch.setattr(machine, "_SERVER_NEEDS", ("no_such_package",))
    monkeypatch.setenv("PATH", "")
    code, _, err = run(*command)
    assert code == 2 and "pip install 'khot[server]'" in err

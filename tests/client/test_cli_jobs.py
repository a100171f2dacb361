"""Jobs, groups and data from a shell: every example of the help runs."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import commands, run

import khot_client
from khot_client.cli import wishes
from khot_server.api.identity import Tokens

PAGE = (Path(__file__).parents[2] / "client/README.md").read_text()
JOB_TOML = """
kind = "feature-selection"
dataset = "table.csv"
target = "y"
k = 1
epochs = 2
references = false

[options]
labels = { for = "test" }
max_run_time = "10m"
"""
EXAMPLES = {name: examples for name, examples, _ in commands()}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """A folder with the files that examples name."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 7},{i % 2},{i % 3},{i % 2}" for i in range(60)]
    Path("table.csv").write_text("\n".join(["a,b,c,y", *rows]))
    Path("job.toml").write_text(JOB_TOML)


@pytest.fixture
def ask(server):
    """Run a command against the server; it must go well."""

    def asked(command: str, **more: str) -> str:
        code, out, err = run(*command.split()[1:], KHOT_ADDRESS=server, **more)
        assert code == 0, err
        assert "Traceback" not in err
        return out

    return asked


@pytest.fixture(scope="module")
def ended(server):
    """The id of a job that has succeeded."""
    with khot_client.Client(server) as client:
        job = client.submit(khot_client.FeatureSelection(k=10, epochs=2, references=False))
        job.wait()
        return job.id


def example(name: str, number: int = 0, **stands_for: str) -> str:
    """An example of the help, with ids of ours in place of its own."""
    text = EXAMPLES[name][number]
    return re.sub(r"\b[0-9a-f]{16}\b", next(iter(stands_for.values()), ""), text)


SIMPLE = ["status", "sample", "relax", "operators", "jobs", "data list", "data show", "info"]


@pytest.mark.parametrize("name", SIMPLE)
def test_examples_of_commands_without_a_job_run(ask, name):
    for number in range(len(EXAMPLES[name])):
        ask(example(name, number))


READING = ["show", "watch", "result", "plot", "logs", "download"]


@pytest.mark.parametrize("name", READING)
def test_examples_about_a_job_run_and_print_json_too(ask, ended, name):
    command = example(f"job {name}", job=ended)
    assert "\x1b" not in ask(command)
    for line in ask(f"{command} --json").splitlines():
        json.loads(line)


def test_submit_and_watch_draw_the_chosen_features(ask):
    out = ask(
        "khot submit feature-selection -k 10 --epochs 1 --watch --no-references --hidden 32,16"
    )
    assert out.count("██") == 10 and out.count("· ") == 54
    assert "succeeded" in out and re.search(r"test: accuracy \d+\.\d%, loss [\d.]+", out)
    assert "│" not in out, "no frame where there is no terminal"
    job_id = out.splitlines()[0]
    assert ask(f"khot job watch {job_id}") == out.partition("\n")[2]
    shown = ask(f"khot job show {job_id}")
    assert "state\tsucceeded\n" in shown and "hidden=(32, 16)" in shown
    assert ask(f"khot job result {job_id}").count("██") == 10
    listed = ask(f"khot job download {job_id} --list")
    assert "result.json\t" in listed
    assert ask(f"khot job download {job_id} result.json --to mine.json") == "mine.json\n"
    assert "apply" in json.loads(Path("mine.json").read_text())


def test_a_vae_is_submitted_and_its_units_drawn(ask):
    out = ask("khot submit vae --epochs 1 --watch --encoder 16 --decoder 16")
    assert "use of 10 x 10 units" in out and "▒" in out


def test_a_sparse_regression_is_submitted_and_its_equation_shown(ask):
    out = ask(example("submit sparse-regression"))
    assert "3 of 19 features" in out
    assert "v_t = -1.000 v_xx - 1.000 v_xxxx - 1.000 v*v_x" in out
    assert re.search(r"^ *v\*v_x +-1(\.0\d*)? █+ 1\.000$", out, re.MULTILINE)
    job_id = out.splitlines()[0]
    assert "v_xxxx" in ask(f"khot job result {job_id}")
    assert "validation_r2" in ask(f"khot job plot {job_id}")
    found = json.loads(ask(f"khot job result {job_id} --json"))
    assert found["names"] == ["v_xx", "v_xxxx", "v*v_x"]
    assert job_id in ask("khot jobs --kind sparse-regression")
    Path("job.toml").write_text('kind = "sparse-regression"\nk = 3\nignore = ["v^3"]\nsteps = 20\n')
    assert "the server would take it" in ask("khot submit -f job.toml --validate")


def test_the_example_of_a_file_runs(ask):
    out = ask(example("submit file"))
    job_id, *_ = out.splitlines()
    assert "1 of 3 features" in out and re.search(r"^[abc] █", out, re.MULTILINE)
    job = json.loads(ask(f"khot job show {job_id} --json"))
    assert job["labels"] == {"for": "test"} and job["max_run_s"] == 600
    assert job_id in ask("khot jobs --label for=test --kind feature-selection")
    sent = ask("khot submit -f job.toml --label more=1 --priority 3 --json")
    job = json.loads(ask(f"khot job show {json.loads(sent)['id']} --json"))
    assert job["labels"] == {"for": "test", "more": "1"} and job["priority"] == 3
    assert job["spec"]["kind"] == "feature_selection"


def test_the_file_of_the_page_is_taken(ask):
    (text,) = re.findall(r"^```toml\n(kind = .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    Path("job.toml").write_text(text)
    _, wanted = wishes.read(Path("job.toml"))
    assert wanted.spread() and wanted.max_run_s and wanted.labels
    Path("job.toml").write_text(text.partition("[group]")[0])
    assert "the server would take it" in ask("khot submit -f job.toml --validate")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "kind must be among feature-selection, vae, sparse-regression; got 'none'"),
        ('kind = "featureselection"', "Is 'feature-selection' meant?"),
        ('kind = "vae"\nlatent = 3', "Is 'latents' meant?"),
        ('kind = "vae"\n[options]\nlabel = 3', "Is 'labels' meant?"),
        ('kind = "vae"\n[group]\nseed = 3', "Is 'seeds' meant?"),
        ('kind = "vae"\noptions = 3', "options must be a table; got 3"),
        ('kind = "vae"\n[options]\nmax_run_time = "soon"', "such as 90s, 10m or 1.5h"),
        ("kind = ", "must be a TOML file; got Invalid value"),
        ('kind = "vae"\nk = "x"', "Vae.k: must be of the type"),
        ('kind = "vae"\ndataset = 5', "dataset must be text; got 5"),
        ('kind = "vae"\n[options]\nlabels = "a"', "labels must be a table; got 'a'"),
        ('kind = "vae"\n[options]\nlabels = {a = 1}', "labels: a must be text; got 1"),
        ('kind = "vae"\n[options]\npriority = "b"', "priority must be a whole number; got 'b'"),
        ('kind = "vae"\n[group]\nseeds = 5', "seeds must be words such as 0-4, or a list; got 5"),
        ('kind = "vae"\n[group]\ngrid = [1]', "grid must be a table; got [1]"),
        ('kind = "vae"\n[group]\ngrid = {k = 1}', "k must be a list; got 1"),
    ],
)
def test_a_bad_file_is_told(server, text, message):
    Path("job.toml").write_text(text)
    code, out, err = run("submit", "-f", "job.toml", KHOT_ADDRESS=server)
    assert code in (1, 2) and out == "" and err.count("\n") == 1
    assert message in err


def test_a_group_is_a_table(ask):
    out = ask(
        "khot submit feature-selection -k 5 --seeds 0-1 --grid tau=0.5,1 --epochs 1"
        " --no-references --watch"
    )
    group_id, *lines = out.splitlines()
    assert lines[-4].startswith("4/4 ended")
    assert lines[-3].split("\t")[:3] == ["tau", "jobs", "succeeded"]
    assert [line.split("\t")[:3] for line in lines[-2:]] == [["0.5", "2", "2"], ["1", "2", "2"]]
    assert ask(example("group show", group=group_id)).splitlines() == lines[-3:]
    assert ask(example("group watch", group=group_id)).splitlines() == lines[-4:]
    assert len(json.loads(ask(f"khot group show {group_id} --json"))["jobs"]) == 4
    assert len(ask(f"khot jobs --group {group_id}").splitlines()) == 5


def test_a_job_is_paused_resumed_cancelled_and_tried_again(ask, server, client):
    sent = ask("khot submit feature-selection --epochs 10000 --patience 0 --no-references")
    job_id = sent.strip()
    job = client.job(job_id)

    def until(state: str) -> None:
        deadline = time.monotonic() + 30
        while job.status().state != state:
            assert time.monotonic() < deadline, job.status()
            time.sleep(0.05)

    until("RUNNING")
    code, _, err = run("job", "result", job_id, KHOT_ADDRESS=server)
    assert code == 1 and f"Wait for it with: khot job watch {job_id} --address {server}" in err
    ask(example("job pause", job=job_id))
    until("PAUSED")
    assert ask(example("job resume", job=job_id)) == f"{job_id} queued\n"
    ask(example("job cancel", job=job_id))
    until("CANCELLED")
    for command in ("result", "watch"):
        code, _, err = run("job", command, job_id, KHOT_ADDRESS=server)
        assert code == 3 and err.startswith(f"khot: job {job_id}: was cancelled. `khot job logs`")
    assert json.loads(ask(f"{example('job retry', job=job_id)} --json"))["id"] == job_id
    ask(f"khot job cancel {job_id}")
    until("CANCELLED")


def test_a_cancelled_group_is_told(ask, server):
    group_id = ask(
        "khot submit feature-selection --seeds 0-1 --epochs 10000 --patience 0 --no-references"
    ).strip()
    ask(example("group cancel", group=group_id))
    code, _, err = run("group", "watch", group_id, KHOT_ADDRESS=server)
    assert code == 3 and f"khot jobs --group {group_id}" in err


def test_data_is_uploaded_shown_and_removed(ask):
    data_id = ask(example("data upload")).strip()
    assert f"{data_id}\tmeasurements\t60\t4" in ask("khot data list")
    shown = ask(f"khot data show {data_id}")
    assert "column\ttype\tmissing\tdistinct\trange\tmean\na\tinteger\t0\t7\t0 to 6\t" in shown
    assert json.loads(ask(f"khot data show {data_id} --json"))["rows"] == 60
    assert json.loads(ask("khot data upload table.csv --name measurements --json"))["id"] == data_id
    assert ask(example("data rm", data=data_id)) == f"{data_id} removed\n"


def test_a_token_that_was_made_is_one_that_a_server_takes():
    command = example("token new").partition(" >>")[0].split()[1:]
    script = Path(sys.executable).with_name("khot")
    done = subprocess.run(
        [script, *command], capture_output=True, text=True, timeout=60, check=True
    )
    Path("tokens.toml").write_text(done.stdout)
    identity = Tokens.load(Path("tokens.toml")).identify(done.stderr.strip())
    assert identity.tenant == "vision" and identity.scopes == {"sample"}

"""`khot reproduce`: its runs, its CSV, what is made of it, and how jobs become rows."""

import dataclasses
import json
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from commands import run

from khot_client.errors import BadSettings
from khot_client.job_values import JobState, Progress
from khot_client.reproduce import (
    drive,
    dvae,
    experiments,
    plans,
    published,
    report,
    search,
    settings,
    vae_curves,
)
from khot_client.reproduce.display import remaining_s
from khot_client.reproduce.drive import Driver
from khot_client.reproduce.ledger import Ledger, latest
from khot_client.reproduce.runs import Run, in_groups
from khot_client.specs import FeatureSelection, VaeResult

TABLE3, FIGURE5 = experiments.find("table3"), experiments.find("figure5")
KS = experiments.find("ks")
TABLE4, LARGE, DVAE = map(experiments.find, ("table4", "table4-large", "dvae"))


def row_of(one: Run, **more: object) -> dict[str, object]:
    """What is written of a run that has ended."""
    row = {"experiment": "table3", "dataset": one.dataset, "method": one.method, "seed": one.seed}
    row |= {"test_loss": 0.1, "test_accuracy": 0.97, "validation_loss": 0.11, "epochs_run": 20}
    row |= {"seconds": 60, "settings": one.settings, "khot": "0.1.0", "torch": "2.13.0"}
    return row | {"commit": "abc", "started": "2026-01-01T00:00:00Z"} | more


def ledger(folder, experiment=TABLE3):
    return Ledger(folder / f"{experiment.name}.csv", experiment.measured)


def test_table3_is_six_methods_on_two_data_sets_with_five_seeds():
    *runs, mnist, fashion = sorted(
        TABLE3.runs(TABLE3.choose()), key=lambda r: r.method == plans.REFERENCE
    )
    assert [mnist.dataset, fashion.dataset] == ["mnist", "fashion-mnist"]
    assert mnist.spec.references and mnist.method == fashion.method == plans.REFERENCE
    assert Counter((r.method, r.dataset) for r in runs) == dict.fromkeys(
        ((m, d) for m in published.NAMES for d in ("mnist", "fashion-mnist")), 5
    )
    assert {key[::-1] for key in published.TABLE3} == {(r.method, r.dataset) for r in runs}
    for one in runs:
        assert (one.spec.k, one.spec.hidden, one.spec.references) == (50, (512, 256), False)
        assert one.spec.estimator == one.method and one.spec.validation_share == 1 / 12
    assert [len(group) for group in in_groups(runs)] == [5] * 12


@pytest.mark.parametrize("experiment", experiments.EXPERIMENTS.values(), ids=lambda e: e.name)
def test_the_settings_name_each_method_and_only_fields_of_the_job(experiment):
    known = settings.load(experiment.name)
    assert {*experiment.whole.methods} <= {*known.table["methods"]}
    for choice in (experiment.choose(), experiment.choose(quick=True)):
        runs = experiment.runs(choice)
        assert len({one.settings for one in runs}) == len(runs) > 0
        for one in runs:
            assert one.spec.seed in choice.seeds
            named = one.method == plans.REFERENCE or one.method.startswith(one.spec.estimator)
            assert named


def test_figure5_has_a_curve_and_at_least_four_guesses():
    runs = FIGURE5.runs(FIGURE5.choose())
    fixed = [r.spec for r in runs if r.method == "pi_st"]
    learned = [r.spec for r in runs if r.method == "pi_st_implicit"]
    assert len({spec.k for spec in fixed}) == 7 and {spec.penalty for spec in fixed} == {None}
    assert len({spec.initial_k for spec in learned}) == 4
    assert {(spec.k, spec.penalty) for spec in learned} == {(None, 0.01)}


def test_table4_has_three_seeds_of_mnist_and_one_of_fashion_mnist():
    runs = TABLE4.runs(TABLE4.choose())
    assert Counter((r.method, r.dataset) for r in runs) == {
        (method, dataset): seeds
        for method in published.NAMES
        for dataset, seeds in (("mnist", 3), ("fashion-mnist", 1))
    }
    assert {key[::-1] for key in published.TABLE4} == {(r.method, r.dataset) for r in runs}
    for one in runs:
        assert (one.spec.latents, one.spec.n, one.spec.k) == (10, 10, 5)
        assert (one.spec.encoder, one.spec.decoder) == ((512, 256), (256, 512))
    assert len(TABLE4.runs(TABLE4.choose(["fashion-mnist"], ["simple"], [0, 1, 2]))) == 3


def test_the_large_table4_has_the_methods_that_the_paper_leaves_empty():
    runs = LARGE.runs(LARGE.choose(["mnist"]))
    assert {(r.spec.latents, r.spec.n, r.spec.k) for r in runs} == {(1, 1000, 500)}
    empty = {r.method for r in runs if ("mnist", r.method) not in published.TABLE4_LARGE}
    assert empty == {"softsub", "simple"} and len(runs) == 6


def test_dvae_compares_priors_and_estimators():
    specs = {r.method: r.spec for r in DVAE.runs(DVAE.choose())}
    assert {(s.latents, s.n, s.batch_size) for s in specs.values()} == {(20, 20, 100)}
    chosen = {name: (s.estimator, s.k, s.prior, s.noise) for name, s in specs.items()}
    assert chosen == {
        "simple_exact": ("simple", 10, "exact", None),
        "simple": ("simple", 10, "softmax", None),
        "imle": ("imle", 10, "softmax", None),
        "imle_gumbel": ("imle", 10, "softmax", "gumbel"),
        "simple_1": ("simple", 1, "softmax", None),
        "st_gumbel_softmax_1": ("st_gumbel_softmax", 1, "softmax", None),
        "st_gumbel_softmax_1_cold": ("st_gumbel_softmax", 1, "softmax", None),
    }


def test_what_a_run_is_known_by_is_the_same_in_every_process():
    one = Run("pi_st", FeatureSelection("mnist", k=50, seed=3, hidden=(512, 256)))
    assert one.settings == (
        '{"dataset":"mnist","hidden":[512,256],"k":50,"kind":"feature_selection","seed":3}'
    )
    assert one.common == "0672a445ffafae92"
    other = dataclasses.replace(one, spec=dataclasses.replace(one.spec, seed=4))
    assert other.common == one.common and other.settings != one.settings


def test_the_search_has_one_budget_for_all_and_a_seed_of_no_table():
    runs = TABLE3.search(TABLE3.choose())
    grid = settings.load("table3").searched("pi_st")
    assert Counter((r.method, r.dataset) for r in runs) == dict.fromkeys(
        ((m, d) for m in published.NAMES for d in ("mnist", "fashion-mnist")), len(grid)
    )
    assert not {r.seed for r in runs} & {*TABLE3.whole.seeds}
    assert len({r.spec.epochs for r in runs}) == 1
    with pytest.raises(BadSettings, match="search: must be of table3, .*; got figure5"):
        FIGURE5.search(FIGURE5.choose())


def test_runs_with_a_row_are_not_missing(tmp_path):
    runs = TABLE3.runs(TABLE3.choose())
    ledger(tmp_path).add(row_of(runs[0]))
    ledger(tmp_path).add(row_of(runs[7]))
    again = ledger(tmp_path)
    assert again.missing(runs) == [*runs[1:7], *runs[8:]]
    assert again.rows[0]["test_loss"] == "0.1"


def test_a_line_that_was_cut_off_is_no_row_and_is_taken_away(tmp_path):
    runs = TABLE3.runs(TABLE3.choose())
    book = ledger(tmp_path)
    book.add(row_of(runs[0]))
    whole = book.path.read_bytes()
    with book.path.open("ab") as file:
        file.write(b'table3,mnist,softsub,1,0.1,"{""ba')
    again = ledger(tmp_path)
    assert again.missing(runs) == runs[1:]
    again.add(row_of(runs[1]))
    assert again.path.read_bytes().startswith(whole)
    assert len(ledger(tmp_path).rows) == 2 and again.path.read_bytes().count(b"\n") == 3


def test_a_file_with_other_columns_is_left_alone(tmp_path):
    (tmp_path / "table3.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadSettings, match="must have the columns experiment, .*; got a, b. Move"):
        ledger(tmp_path)


def test_of_changed_settings_the_last_ones_count():
    runs = TABLE3.runs(TABLE3.choose(["mnist"], ["pi_st"], [0, 1]))
    changed = [dataclasses.replace(r, spec=dataclasses.replace(r.spec, tau=0.5)) for r in runs]
    rows = [row_of(r) for r in (*runs, changed[0])]
    assert latest(rows, TABLE3.varied) == rows[2:]


def test_the_table_puts_the_papers_numbers_beside_ours(tmp_path):
    book = ledger(tmp_path)
    for one in TABLE3.runs(TABLE3.choose(["mnist"], ["pi_st", "simple"], [0, 1])):
        loss = 0.100 + 0.002 * one.seed
        book.add(row_of(one, test_loss=loss))
    text = report.page(TABLE3, book.rows, "table3", quick=False)
    assert "| SIMPLE (`simple`) | 0.099 ± 9.0e-04 | 0.1010 ± 1.4e-03 | 2 | +0.0020 | no |" in text
    assert "| πST (`pi_st`) | 0.102 ± 1.4e-03 | 0.1010 ± 1.4e-03 | 2 | -0.0010 | yes |" in text
    asked = "`khot reproduce table3 --datasets mnist --methods simple,pi_st --seeds 2`"
    assert asked in text and "`epochs` " in text and "khot 0.1.0, torch 2.13.0, commit abc" in text
    assert "neither the number of\nepochs nor the batch size" in text


def vae_row(one: Run, test_loss: float, losses: list[float], **more: object) -> dict[str, str]:
    """A row of a VAE that has so many times five epochs behind it."""
    more |= {"test_loss": test_loss, "test_reconstruction": test_loss - 8, "test_prior": 8}
    more |= {"test_top_reconstruction": test_loss - 9}
    more |= {"every_fifth": json.dumps(losses), "epochs_run": 5 * len(losses)}
    return {name: str(value) for name, value in row_of(one, **more).items()}


def test_the_curve_of_a_vae_is_that_of_every_fifth_epoch():
    job = SimpleNamespace(
        metrics=lambda name: {name: SimpleNamespace(values=100.0 - np.arange(12))}
    )
    terms = {"reconstruction": 80.0, "prior": 9.0}
    test, validation = terms | {"elbo": -89.0}, terms | {"elbo": -90.0}
    result = VaeResult(test=test, validation=validation, usage=None, epochs_run=12)
    kept = vae_curves.measured(result, job)
    assert (kept["test_loss"], kept["validation_loss"], kept["test_elbo"]) == (89.0, 90.0, -89.0)
    assert vae_curves.curve(kept) == {5: 96.0, 10: 91.0}
    other = dataclasses.replace(result, test={"loss": 89.0, "subset_elbo": -95.0} | terms)
    kept = dvae.measured(other, job)
    assert (kept["test_loss"], kept["test_elbo"]) == (89.0, -95.0)
    assert vae_curves.curve(kept, "elbo_every_fifth") == {5: 96.0, 10: 91.0}


def test_curves_are_drawn_out_by_a_power_law():
    seen = {epoch: 80 + 50 * epoch**-0.5 for epoch in range(5, 55, 5)}
    assert vae_curves.drawn_out(seen, 500) == pytest.approx(80 + 50 * 500**-0.5, abs=0.05)
    assert vae_curves.drawn_out(dict(list(seen.items())[:3]), 500) is None, "too few to say"
    flat = dict.fromkeys(range(5, 55, 5), 90.0)
    assert vae_curves.drawn_out(flat, 500) == pytest.approx(90)
    rising = {epoch: 90.0 + epoch for epoch in range(5, 55, 5)}
    assert vae_curves.drawn_out(rising, 500) is None, "it falls by no power"


def test_the_table_of_vaes_has_the_papers_numbers_and_the_curves(tmp_path):
    runs = TABLE4.runs(TABLE4.choose(["mnist"], ["pi_st", "simple"], [0, 1]))
    rows = [vae_row(r, 90.0 + r.seed, [100.0, 95.0, 92.0, 91.0 + r.seed]) for r in runs]
    text = report.page(TABLE4, rows, "table4", quick=False)
    line = "| πST (`pi_st`) | 82.78 ± 0.23 | 90.50 ± 0.71 | 2 | +7.72 | no |"
    assert f"{line} 89.50 | 82.50 | 8.00 | 20 |" in text and "at 200 epochs?" in text
    assert "what [table4_search](table4_search.md) lists was chosen there" in text
    assert "_search" not in report.page(TABLE4, rows, "table4_quick", quick=True)
    old = [row | {"test_top_reconstruction": ""} for row in rows]
    assert "| no |  | 82.50 | 8.00 | 20 |" in TABLE4.table(old, TABLE4.reported)
    assert "| `simple` | 100.00 | 95.00 | 91.50 |" in text and "| method | 5 | 10 | 20 |" in text
    TABLE4.draw(rows, TABLE4.reported, tmp_path / "table4.png")
    assert (tmp_path / "table4.png").read_bytes()[1:4] == b"PNG"


def test_what_is_above_the_papers_numbers_is_said_plainly():
    methods = {"pi_st": 80.0, "simple": 70.0, "ncpss": 84.0}  # what their curves tend to
    rows = [
        vae_row(r, 82.0, [methods[r.method] + 30 * 5 * t**-1.0 for t in range(5, 55, 5)])
        for r in TABLE4.runs(TABLE4.choose(["mnist"], [*methods], [0]))
    ]
    text = TABLE4.table(rows, TABLE4.reported)
    assert "Above the published number: `simple`." in text, "82.78 of pi_st, 82.88 of ncpss"
    assert "After 500 epochs the drawn-out curve is at or below it: `simple`." in text
    rows = [row | {"test_loss": "90.0"} for row in rows]
    text = TABLE4.table(rows, TABLE4.reported)
    assert "Above the published number: `ncpss`, `simple`, `pi_st`." in text
    assert "is at or below it: `simple`, `pi_st`. After 500 epochs it is above it still" in text
    assert "still: `ncpss`." in text
    rows = [row | {"test_loss": "80.0"} for row in rows]
    assert "Above the published" not in TABLE4.table(rows, TABLE4.reported)


def test_the_order_of_the_dvaes_is_told(tmp_path):
    # by method: test loss, ELBO
    told = {
        "simple_exact": (140.0, -140.0),
        "simple": (91.0, -190.0),
        "imle": (95.0, -180.0),
        "imle_gumbel": (90.0, -200.0),
        "simple_1": (110.0, -110.0),
        "st_gumbel_softmax_1": (109.0, -109.0),
        "st_gumbel_softmax_1_cold": (111.0, -112.0),
    }
    rows = []
    for one in DVAE.runs(DVAE.choose()):
        loss, bound = told[one.method]
        kept = {"test_elbo": bound, "elbo_every_fifth": json.dumps([bound] * 2)}
        rows.append(vae_row(one, loss, [loss] * 2, **kept))
    ten, one = DVAE.table(rows, {}).split("k = 1\n")
    line = "| SIMPLE, exact ELBO (`simple_exact`) | -140.00 | 1 | 140.00 | 132.00 | 8.00 | 10 |"
    assert line in ten
    others = "`simple`, `imle`, `imle_gumbel`"
    assert f"by minus the ELBO: yes, `simple_exact` below {others}." in ten
    assert "by the loss: no; `simple` is not below `imle_gumbel`." in ten
    assert "by the loss: no; `simple_1` is not below `st_gumbel_softmax_1`." in one
    alone = [row for row in rows if row["method"] == "simple_exact"]
    assert "The order" not in DVAE.table(alone, {})
    DVAE.draw(rows, {}, tmp_path / "dvae.png")
    assert (tmp_path / "dvae.png").read_bytes()[1:4] == b"PNG"


def equation_of(one: Run) -> dict[str, str]:
    """A row of ks: the seed 0 has found another equation."""
    names = ["v_xx", "v_xxxx", "v*v_x" if one.seed else "v"]
    more = {"found": min(one.seed, 1), "names": json.dumps(names), "test_rmse": 0.01}
    more |= {"coefficients": json.dumps([-1.0] * 3), "equation": "v_t = ..."}
    return {name: str(value) for name, value in row_of(one, **more).items()}


def test_the_table_says_how_often_the_equation_was_found():
    rows = [equation_of(one) for one in KS.runs(KS.choose([], ["simple"], [0, 1, 2]))]
    exact = "-1.0000 ± 0.0e+00"
    assert f"| `simple` | 2 of 3 | {exact} | {exact} | {exact} | 0.01 |" in KS.table(rows, {})
    own = [{**row, "dataset": "mine-1234"} for row in rows]
    assert "| `v_t = ...` | 2 of 3 | `simple` | 0.01 |" in KS.table(own, {})
    asked = "khot reproduce ks --field mine.npz --terms 3 --methods simple --seeds 3"
    assert report.command(KS, own, quick=False) == asked


def test_a_whole_table_names_the_plain_command(tmp_path):
    rows = [row_of(one) for one in TABLE3.runs(TABLE3.choose())]
    assert report.command(TABLE3, rows, quick=False) == "khot reproduce table3"


def test_the_best_of_a_search_is_what_is_pasted():
    known = settings.load("table3")
    runs = TABLE3.search(TABLE3.choose(["mnist"], ["pi_st"]))
    rows = [row_of(r, validation_loss=0.2 + 0.01 * i) for i, r in enumerate(runs)]
    rows[2] = {**rows[2], "validation_loss": 0.1}
    (best,) = search.best(rows, known)
    assert (best.validation_loss, best.tried) == (0.1, len(runs))
    assert best.values == {name: getattr(runs[2].spec, name) for name in known.grid}
    (block,) = search.blocks("table3", [best])
    assert block in search.page("table3", rows, known)


def test_a_method_may_have_a_grid_of_its_own_beside_that_of_all():
    known = settings.load("dvae")
    runs = DVAE.search(DVAE.choose())
    tried = Counter(r.method for r in runs)
    assert tried["imle"] == tried["imle_gumbel"] == 3 * tried["simple"]
    assert {r.spec.strength for r in runs if r.method == "imle"} == {1.0, 10.0, 100.0}
    assert {r.spec.strength for r in runs if r.method == "simple"} == {None}
    rows = [row_of(r, validation_loss=100 + i) for i, r in enumerate(runs)]
    found = {one.method: one.values for one in search.best(rows, known)}
    assert found["imle"] == {"learning_rate": 5e-4, "strength": 1.0}
    assert found["simple"] == {"learning_rate": 5e-4}
    page = search.page("dvae", rows, known)
    assert "for each method; of `imle` also `strength`; of `imle_gumbel` also `strength`." in page
    assert "| mnist | simple | 0.0005 |  | " in page


def test_what_is_written_is_read_again_and_the_rest_stays(tmp_path):
    first = settings.block("table3", "fashion-mnist", "pi_st", {"tau": 0.5, "epochs": 3})
    second = settings.block("table3", "fashion-mnist", "pi_st", {"tau": 0.25})
    path = tmp_path / "settings.toml"
    text = settings.write(settings.write(settings.PATH.read_text(), [first]), [second])
    path.write_text(text)
    before, after = settings.load("table3"), settings.load("table3", path)
    own = {"tau": 0.25, "epochs": 3}
    assert after.of("pi_st", "fashion-mnist") == before.of("pi_st", "fashion-mnist") | own
    assert after.of("pi_st", "mnist") == before.of("pi_st", "mnist")
    assert settings.load("figure5", path) == settings.load("figure5")
    assert settings.write(text, [second]) == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table9", "must be among table3, table3-classes, figure5, ks, table4, "),
        ("table3 --methods pi", "methods: must be among softsub, ncpss, simple, pi_st, pi_st2"),
        ("table3 --datasets digits", "datasets: must be among mnist, fashion-mnist; got 'digits'"),
        ("table3 --seeds some", "seeds: must be whole numbers such as 0-4 or 1,2,7; got 'some'"),
        ("table3 --seeds 0", "seeds: must be at least one; got 0"),
        ("table3 --write", "write: must come with --search; got it alone"),
        ("table3 --quick --search --write", "write: must be of a whole search; got it with"),
        ("table3 --search --seeds 3", "seeds: must be absent with --search"),
        ("figure5 --search", "search: must be of table3, table3-classes, table4, "),
        ("table3 --field f.npz", "field: must be of ks; got it with table3"),
        ("ks --field f.npz", "f.npz: must be a file with a field; got No such file"),
        ("ks --terms 2", "terms: must come with --field; got it alone"),
        ("ks --field f.npz --datasets a", "datasets: must be absent with --field; got some"),
        ("table3 --render", "table3.csv: must have rows to be drawn; got none"),
    ],
)
def test_what_cannot_be_meant_is_told(tmp_path, words, message):
    code, out, err = run("reproduce", *words.split(), "--out", str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_table_and_picture_are_drawn_of_the_csv_alone(tmp_path, monkeypatch):
    book = ledger(tmp_path, FIGURE5)
    for one in FIGURE5.runs(FIGURE5.choose()):
        book.add(row_of(one, k=one.spec.k or 40))
    words = ("reproduce", "figure5", "--render", "--out", str(tmp_path))
    code, out, err = run(*words)
    assert (code, err) == (0, "") and out.split()[1:] == [
        str(tmp_path / "figure5.md"),
        str(tmp_path / "figure5.png"),
    ]
    assert "| 400 | 0 | 40 | 0.1000 | 0.5000 | +0.3000 |" in (tmp_path / "figure5.md").read_text()
    first = (tmp_path / "figure5.png").read_bytes()
    run(*words)
    assert (tmp_path / "figure5.png").read_bytes() == first
    printed = [json.loads(line) for line in run(*words, "--json")[1].splitlines()]
    assert len(printed) == 11 and printed[0]["settings"]["kind"] == "feature_selection"
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = run(*words)
    assert code == 0 and "pip install 'khot[server]'" in err and "figure5.png" not in out


def progress(step: int) -> Progress:
    now = datetime.now(UTC)
    return Progress(0, now, step, 100, {"loss": 1.0}, steps_per_s=1.0, remaining_s=100.0 - step)


def test_the_time_left_is_that_of_all_runs():
    one, two = TABLE3.runs(TABLE3.choose())[:2]
    assert remaining_s({}, 5, []) is None and remaining_s({one: None}, 5, []) is None
    assert remaining_s({one: progress(50), two: progress(50)}, 4, [100.0]) == 250
    assert remaining_s({one: progress(10)}, 0, [20.0]) == 90


class FakeServer:
    """What of a client is used, on jobs that end when they are looked at twice."""

    def __init__(self) -> None:
        self.jobs_: dict[str, SimpleNamespace] = {}
        self.asked: list[str] = []
        self.fails: set[str] = set()

    def submit_group(self, spec, *, seeds, labels, request_id):
        self.asked.append(request_id)
        made = []
        for seed in seeds:
            job = SimpleNamespace(id=f"job{len(self.jobs_)}", labels=labels, progress=None)
            job.spec, job.state, job.looks = (
                dataclasses.replace(spec, seed=seed),
                JobState.QUEUED,
                0,
            )
            self.jobs_[job.id] = job
            made.append(job)
        return SimpleNamespace(status=lambda: SimpleNamespace(jobs=made))

    def jobs(self, *, labels, states=()):
        for job in self.jobs_.values():
            if states and not job.state.ended and job.state is not JobState.PAUSED:
                job.looks += 1
                bad = job.spec.estimator in self.fails
                ends = JobState.FAILED if bad else JobState.SUCCEEDED
                job.state = ends if job.looks > 1 else JobState.RUNNING
            if not states or job.state in states:
                yield job

    def job(self, job_id):
        found = self.jobs_[job_id]
        now = datetime.now(UTC)
        attempts = [SimpleNamespace(start_time=now, end_time=now + timedelta(seconds=9))]

        def to(state):
            found.state, found.looks = state, 0

        def status():
            good = found.state is JobState.SUCCEEDED
            result = SimpleNamespace(epochs_run=4, loss=0.25) if good else None
            failure = SimpleNamespace(message="diverged") if not good else None
            return SimpleNamespace(state=found.state, result=result, failure=failure)

        return SimpleNamespace(
            status=status,
            attempts=lambda: attempts,
            pause=lambda: to(JobState.PAUSED),
            resume=lambda: to(JobState.QUEUED),
            retry=lambda: to(JobState.QUEUED),
        )


class Heard:
    def __init__(self) -> None:
        self.before, self.rows, self.failures = [], [], []

    def began(self, waiting, picked_up):
        self.before.append((waiting, picked_up))

    def running(self, runs):
        pass

    def ended(self, one, row):
        self.rows.append(row)

    def failed(self, failure):
        self.failures.append(str(failure.run))


@pytest.fixture
def drive_on(tmp_path, monkeypatch):
    """Carry out runs on a server, with a CSV that stays."""
    monkeypatch.setattr(drive, "PERIOD_S", 0.0)
    monkeypatch.setattr(drive, "_provenance", lambda job: {"khot": "0.1.0", "torch": "2.13"})

    def on(server, runs):
        heard = Heard()
        measure = lambda result, job: {"test_loss": result.loss}  # noqa: E731
        driver = Driver(server, "table3", ledger(tmp_path), measure, heard, "abc", alone=True)
        driver.carry_out(runs)
        return heard

    return on


def test_runs_are_submitted_in_groups_and_each_has_a_row(drive_on, tmp_path):
    server, runs = FakeServer(), TABLE3.runs(TABLE3.choose(["mnist"], [], [0, 1]))
    heard = drive_on(server, runs)
    assert len(server.asked) == 7 and heard.before == [(13, 0)]
    assert {row["settings"] for row in heard.rows} == {one.settings for one in runs}
    assert heard.rows[0]["test_loss"] == "0.25" and heard.rows[0]["seconds"] == "9.0"
    assert drive_on(server, runs).before == [(0, 0)], "all have rows"


def test_jobs_that_are_there_are_picked_up_and_others_wait(drive_on, tmp_path):
    server, runs = FakeServer(), TABLE3.runs(TABLE3.choose(["mnist"], ["pi_st"], [0, 1, 2]))
    labels = {"reproduce": "table3", "settings": runs[0].common, "method": "pi_st"}
    server.submit_group(runs[0].spec, seeds=[0, 1], labels=labels, request_id="earlier")
    heard = drive_on(server, runs[1:])
    assert heard.before == [(2, 1)]
    assert [job.state for job in server.jobs_.values()] == ["PAUSED", "SUCCEEDED", "SUCCEEDED"]
    assert drive_on(server, runs).before == [(1, 1)], "it is resumed when it is asked for"
    assert [job.state for job in server.jobs_.values()] == ["SUCCEEDED"] * 3


def test_a_failed_run_is_told_and_the_others_go_on(drive_on, tmp_path):
    server, runs = FakeServer(), TABLE3.runs(TABLE3.choose(["mnist"], ["pi_st", "simple"], [0]))
    server.fails = {"simple"}
    heard = drive_on(server, runs)
    assert heard.failures == ["simple on mnist, seed 0"] and len(heard.rows) == 1
    server.fails = set()
    assert [row["method"] for row in drive_on(server, runs).rows] == ["simple"]
    assert len(server.jobs_) == 2, "it was tried again, not submitted again"


def test_the_same_runs_make_the_same_request(drive_on, tmp_path):
    runs = TABLE3.runs(TABLE3.choose(["mnist"], ["pi_st"], [0]))
    one, two = FakeServer(), FakeServer()
    drive_on(one, runs)
    (tmp_path / "table3.csv").unlink()
    drive_on(two, runs)
    assert one.asked == two.asked and len(one.asked[0]) <= 64

"""result.json is strict JSON, and with numpy alone it chooses the columns of new rows."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from khot_server.jobs.artifacts.result_json import result_json
from khot_server.jobs.spec import FeatureSelectionSpec


def read(made):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(result_json(made), parse_constant=refuse)


def test_it_says_what_was_asked_for_found_and_used(made):
    content = read(made)
    kind = made.result.kind
    assert (content["job_id"], content["kind"]) == (made.job_id, kind)
    assert content["spec"]["dataset"] == made.spec.dataset
    assert content["config"] == made.config
    assert content["result"]["test"] == made.result.test
    assert content["provenance"]["data_sha256"] == "ab" * 32
    assert content["provenance"]["start_time"] == "2026-01-02T03:04:05+00:00"
    assert ("apply" in content) == (kind != "vae")


def test_the_spec_in_it_is_the_spec(pixels):
    assert FeatureSelectionSpec(**read(pixels)["spec"] | {"ignore": ()}) == pixels.spec


def test_what_is_not_finite_is_null(pixels):
    test = {"loss": float("nan"), "accuracy": float("inf")}
    content = read(replace(pixels, result=replace(pixels.result, test=test)))
    assert content["result"]["scores"][-1] is None
    assert content["result"]["test"] == {"loss": None, "accuracy": None}


def test_each_list_is_on_one_line(pixels):
    lines = result_json(pixels).decode().splitlines()
    (scores,) = [line for line in lines if line.lstrip().startswith('"scores"')]
    assert len(json.loads("{" + scores.strip().rstrip(",") + "}")["scores"]) == 64


# With nothing but the file and numpy; the lines of the module's docstring.
APPLY = """
import json, sys
import numpy

apply = json.load(open("result.json"))["apply"]
features, fill, mean, scale = (apply[name] for name in ("features", "fill", "mean", "scale"))
rows = numpy.load("rows.npy")
assert rows.shape[1] == apply["columns"]
values = rows[:, features]
if fill is not None:
    values = numpy.where(numpy.isnan(values), fill, values)
values = (values - mean) / scale
numpy.save("values.npy", values)
print([name for name in ("torch", "khot", "khot_server", "matplotlib") if name in sys.modules])
"""


@pytest.mark.parametrize("kind", ["pixels", "table"])
def test_numpy_alone_applies_the_selection(kind, request, tmp_path):
    made = request.getfixturevalue(kind)
    rows = np.random.default_rng(0).normal(size=(5, len(made.result.scores)))
    if kind == "table":
        rows[1, 3] = rows[4, 20] = np.nan
    (tmp_path / "result.json").write_bytes(result_json(made))
    np.save(tmp_path / "rows.npy", rows)
    command = [sys.executable, "-c", APPLY]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    expected = rows[:, list(made.result.features)]
    if kind == "table":
        expected[1, 3] = made.data.fill[3]
        expected = (expected - made.data.mean[:12]) / made.data.scale[:12]
    np.testing.assert_allclose(np.load(tmp_path / "values.npy"), expected, rtol=1e-12)


def test_a_sparse_regression_predicts_with_numpy_alone(regression):
    apply, result = read(regression)["apply"], regression.result
    rows = np.random.default_rng(0).normal(size=(5, apply["columns"]))
    rows[0, 0] = np.nan
    values = rows[:, apply["features"]]
    values = np.where(np.isnan(values), apply["fill"], values)
    found = values @ np.array(apply["coefficients"]) + apply["intercept"]
    filled = np.where(np.isnan(rows), regression.data.fill, rows)
    wanted = filled[:, list(result.features)] @ np.array(result.coefficients) + result.intercept
    np.testing.assert_allclose(found, wanted)
    assert apply["target"] == result.target and tuple(apply["names"]) == result.names

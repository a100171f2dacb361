"""Specifications check themselves, and come back from JSON as they were."""

import subprocess
import sys

import pytest

from khot_server.jobs.results import result_from_json, result_to_json
from khot_server.jobs.spec import (
    ESTIMATORS,
    LEARNS_K,
    ONE_HOT,
    FeatureSelectionSpec,
    SparseRegressionSpec,
    SpecError,
    VaeSpec,
    spec_from_json,
    spec_to_json,
)


def test_bounds_are_allowed():
    FeatureSelectionSpec(dataset="d", k=1, epochs=1, seed=0, hidden=(), patience=0)
    FeatureSelectionSpec(dataset="d", k=2**20, epochs=10_000, seed=2**63 - 1, split_seed=2**32 - 1)
    FeatureSelectionSpec(dataset="d", penalty=1e-9, estimator="pi_st_implicit")
    VaeSpec(dataset="d", latents=1, n=2, k=1, estimator="reinmax")
    VaeSpec(dataset="d", estimator="simple", prior="exact")
    SparseRegressionSpec(dataset="d", k=1, steps=1, num_samples=2, estimator="reinmax")
    SparseRegressionSpec(dataset="d", k=2**20, steps=100_000, num_samples=4096, ridge=1e6)


SELECTIONS = [
    ("dataset", {"dataset": ""}, "must be the name or id of a data set; got none"),
    ("dataset", {"dataset": None}, "must be given; got none"),
    ("dataset", {"dataset": 7}, "must be text; got int"),
    ("k", {"k": 0}, r"must be in \[1, 1048576\]; got 0"),
    ("k", {"k": 2.0}, "must be a whole number; got float"),
    ("k", {"k": True}, "must be a whole number; got bool"),
    ("k", {"k": None}, "must be given, or a penalty by which it is learned; got none of them"),
    ("k", {"penalty": 0.1}, "must be given, or a penalty by which it is learned; got both"),
    ("k", {"estimator": "reinmax"}, "must be 1 with reinmax; got 10"),
    ("epochs", {"epochs": 0}, r"must be in \[1, 10000\]; got 0"),
    ("epochs", {"epochs": 10_001}, r"must be in \[1, 10000\]; got 10001"),
    ("seed", {"seed": -1}, r"must be in \[0, .*\]; got -1"),
    ("seed", {"seed": 2**63}, r"must be in \[0, 9223372036854775807\]; got 922"),
    ("split_seed", {"split_seed": 2**32}, r"must be in \[0, 4294967295\]; got 4294967296"),
    ("penalty", {"k": None, "penalty": 0.0}, r"must be in \(0, 1e6\]; got 0.0"),
    ("estimator", {"estimator": "magic"}, "must be one of pi_st, .*; got 'magic'"),
    (
        "estimator",
        {"k": None, "penalty": 0.1, "estimator": "simple"},
        "must be pi_st_implicit where k is learned; got 'simple'",
    ),
    ("objective", {"objective": "ranking"}, "must be one of classification, regression, reconst"),
    (
        "target",
        {"objective": "reconstruction", "target": "label"},
        "must be absent where features are reconstructed; got label",
    ),
    ("ignore", {"ignore": ["a"]}, "must be a list; got list"),
    ("ignore", {"ignore": (1,)}, "must be a list of texts; got another"),
    ("missing", {"missing": "guess"}, "must be one of refuse, impute; got 'guess'"),
    ("missing", {"missing": None}, "must be given; got none"),
    ("standardize", {"standardize": 1}, "must be true or false; got int"),
    ("hidden", {"hidden": (0,)}, r"widths must be whole and in \[1, 16384\]; got 0"),
    ("hidden", {"hidden": (4,) * 9}, "must have at most 8 layers; got 9"),
    ("tau", {"tau": 0}, r"must be in \(0, 1e6\]; got 0"),
    ("tau", {"tau": float("inf")}, "must be finite; got inf"),
    ("tau", {"tau": "1"}, "must be a number; got str"),
    ("patience", {"patience": -1}, r"must be in \[0, 10000\]; got -1"),
    ("test_share", {"test_share": 1.0}, r"must be in \(0, 1\); got 1.0"),
    ("test_share", {"test_share": 0.85}, "must leave a tenth of the rows for training; got 0.85"),
]
VAES = [
    ("n", {"n": 1, "k": 1}, r"must be in \[2, 1048576\]; got 1"),
    ("k", {"k": 10}, "must be less than n = 10; got 10"),
    ("latents", {"latents": 0}, r"must be in \[1, 10000\]; got 0"),
    ("latents", {"latents": 10_000, "n": 1000}, "latents times n must be at most 1048576; got"),
    (
        "prior",
        {"prior": "exact"},
        "must not be exact unless the estimator is one of simple, score_",
    ),
    ("prior", {"prior": "flat"}, "must be one of softmax, softmax_mean, exact; got 'flat'"),
    ("encoder", {"encoder": ("a",)}, "widths must be whole"),
    ("bound", {"bound": 1}, "must be true or false; got int"),
    ("noise", {"noise": "white"}, "must be one of sum_of_gamma, gumbel; got 'white'"),
]
REGRESSIONS = [
    ("dataset", {"dataset": ""}, "must be the name or id of a data set; got none"),
    ("k", {"k": None}, "must be given; got none"),
    ("k", {"k": 0}, r"must be in \[1, 1048576\]; got 0"),
    ("k", {"estimator": "st_gumbel_softmax"}, "must be 1 with st_gumbel_softmax; got 3"),
    ("steps", {"steps": 100_001}, r"must be in \[1, 100000\]; got 100001"),
    ("num_samples", {"num_samples": 1}, r"must be in \[2, 4096\]; got 1"),
    ("ridge", {"ridge": 0.0}, r"must be in \(0, 1e6\]; got 0.0"),
    ("intercept", {"intercept": None}, "must be given; got none"),
    ("intercept", {"intercept": 1}, "must be true or false; got int"),
    ("references", {"references": "no"}, "must be true or false; got str"),
    ("missing", {"missing": "guess"}, "must be one of refuse, impute; got 'guess'"),
    ("ignore", {"ignore": (1,)}, "must be a list of texts; got another"),
    ("target", {"target": 3}, "must be text; got int"),
    ("test_share", {"test_share": 0.85}, "must leave a tenth of the rows for training; got 0.85"),
]


@pytest.mark.parametrize(("field", "values", "message"), SELECTIONS)
def test_bad_fields_are_named(field, values, message):
    with pytest.raises(SpecError, match=f"^feature_selection.{field}: .*{message}") as caught:
        FeatureSelectionSpec(**{"dataset": "digits", "k": 10} | values)
    assert caught.value.field == f"feature_selection.{field}"


@pytest.mark.parametrize(("field", "values", "message"), VAES)
def test_bad_fields_of_a_vae_are_named(field, values, message):
    with pytest.raises(SpecError, match=f"^vae.{field}: .*{message}"):
        VaeSpec(**{"dataset": "digits"} | values)


@pytest.mark.parametrize(("field", "values", "message"), REGRESSIONS)
def test_bad_fields_of_a_sparse_regression_are_named(field, values, message):
    with pytest.raises(SpecError, match=f"^sparse_regression.{field}: .*{message}"):
        SparseRegressionSpec(**{"dataset": "kuramoto-sivashinsky", "k": 3} | values)


def test_the_estimators_are_those_of_the_registry():
    from khot.registry import operators

    rows = {row.name: row for row in operators("estimator")}
    assert {name: row.law for name, row in rows.items()} == dict(ESTIMATORS)
    assert tuple(name for name, row in rows.items() if row.only_k == 1) == ONE_HOT
    assert not rows[LEARNS_K].needs_k


def test_json_gives_back_what_went_in(spec, result):
    for each in (
        spec,
        FeatureSelectionSpec(dataset="d", penalty=0.5, hidden=(4, 2), ignore=("a", "b")),
        VaeSpec(dataset="d", encoder=()),
        SparseRegressionSpec(dataset="d", k=3, intercept=False, ignore=("a",)),
    ):
        assert spec_from_json(spec_to_json(each)) == each
    assert result_from_json(result_to_json(result)) == result
    assert spec_to_json(spec) == (
        '{"feature_selection":{"dataset":"digits","ignore":[],"k":10,"missing":"refuse",'
        '"references":true,"seed":0,"split_seed":0,"test_share":0.2,"validation_share":0.1}}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "spec: must be a JSON object of one kind; got ''"),
        ("[]", "spec: must be a JSON object of one kind"),
        ("{}", "spec: must be a JSON object of one kind"),
        (
            '{"sort":{}}',
            "spec: kind must be one of feature_selection, vae, sparse_regression; got 'sort'",
        ),
        ('{"feature_selection":1}', "spec.feature_selection: must be a JSON object; got int"),
        ('{"feature_selection":{"k":1}}', "must have every field without a default; got k"),
        ('{"feature_selection":{"kk":1}}', "fields must be of dataset, k, epochs, .*; got kk"),
        ('{"feature_selection":{"dataset":"digits","k":0}}', "feature_selection.k: must be in"),
    ],
)
def test_other_json_is_refused(text, message):
    with pytest.raises(SpecError, match=message):
        spec_from_json(text)


@pytest.mark.parametrize("module", ["spec", "states", "store", "runner"])
def test_the_api_and_the_runner_never_load_torch(module):
    code = f"import sys, khot_server.jobs.{module}; "
    code += "print({'torch', 'khot', 'grpc', 'sklearn', 'matplotlib'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

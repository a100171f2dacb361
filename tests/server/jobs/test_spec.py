"""Specifications check themselves, and come back from JSON as they were."""

import subprocess
import sys

import pytest

from khot_server.jobs.spec import (
    DATASETS,
    FeatureSelectionSpec,
    SpecError,
    result_from_json,
    result_to_json,
    spec_from_json,
    spec_to_json,
)


def test_bounds_are_allowed():
    FeatureSelectionSpec("digits", 1, epochs=1, seed=0)
    FeatureSelectionSpec("digits", 63, epochs=10_000, seed=2**63 - 1)


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("dataset", {"dataset": "mnist"}, "must be one of digits; got 'mnist'"),
        ("dataset", {"dataset": ""}, "must be one of digits; got ''"),
        ("k", {"k": 0}, r"must be in \[1, 63\]; got 0"),
        ("k", {"k": 64}, r"must be in \[1, 63\]; got 64"),
        ("k", {"k": 2.0}, "must be a whole number; got float"),
        ("k", {"k": True}, "must be a whole number; got bool"),
        ("epochs", {"epochs": 0}, r"must be in \[1, 10000\]; got 0"),
        ("epochs", {"epochs": 10_001}, r"must be in \[1, 10000\]; got 10001"),
        ("seed", {"seed": -1}, r"must be in \[0, .*\]; got -1"),
        ("seed", {"seed": 2**63}, r"must be in \[0, 9223372036854775807\]; got 922"),
    ],
)
def test_bad_fields_are_named(field, values, message):
    with pytest.raises(SpecError, match=f"^feature_selection.{field}: {message}") as caught:
        FeatureSelectionSpec(**{"dataset": "digits", "k": 10} | values)
    assert caught.value.field == f"feature_selection.{field}"


def test_json_gives_back_what_went_in(spec, result):
    assert spec_from_json(spec_to_json(spec)) == spec
    assert result_from_json(result_to_json(result)) == result
    assert spec_to_json(spec) == (
        '{"feature_selection":{"dataset":"digits","epochs":30,"k":10,"seed":0}}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "spec: must be a JSON object of one kind; got ''"),
        ("[]", "spec: must be a JSON object of one kind"),
        ("{}", "spec: must be a JSON object of one kind"),
        ('{"vae":{}}', "spec: kind must be one of feature_selection; got 'vae'"),
        ('{"feature_selection":1}', "spec.feature_selection: must be a JSON object; got int"),
        ('{"feature_selection":{"k":1}}', "must have every field without a default; got k"),
        ('{"feature_selection":{"kk":1}}', "fields must be of dataset, k, epochs, seed; got kk"),
        ('{"feature_selection":{"dataset":"digits","k":99}}', "feature_selection.k: must be in"),
    ],
)
def test_other_json_is_refused(text, message):
    with pytest.raises(SpecError, match=message):
        spec_from_json(text)


def test_every_data_set_can_be_loaded_and_has_the_features_it_says():
    from khot_server.jobs.datasets import load
    from khot_server.jobs.spec import FEATURES

    for name in DATASETS:
        data = load(name)
        assert data.x.shape[1] == data.test_x.shape[1] == FEATURES[name]


@pytest.mark.parametrize("module", ["spec", "states", "store", "runner"])
def test_the_api_and_the_runner_never_load_torch(module):
    code = f"import sys, khot_server.jobs.{module}; "
    code += "print({'torch', 'khot', 'grpc', 'sklearn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

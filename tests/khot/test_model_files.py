"""Models as files: they come back as they were, and nothing else does."""

import json

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import nn

from khot.models import FeatureSelector, load, save
from khot.models.files import KINDS, _digest


def selector(**changes):
    arguments = {"n": 6, "classes": 3, "k": 2, "hidden": (5, 4), "tau": 0.7, **changes}
    model = FeatureSelector(**arguments)
    model.fit(torch.randn(30, 6, generator=torch.Generator().manual_seed(0)) * 4 + 1)
    with torch.no_grad():
        model.logits.copy_(torch.arange(6.0).sin())
    model.tau = 0.35
    return model


@pytest.mark.parametrize(
    "changes",
    [{}, {"classes": None, "hidden": ()}, {"k": None, "estimator": "pi_st_implicit"}],
    ids=str,
)
def test_a_model_comes_back_as_it_was(tmp_path, changes):
    model, x = selector(**changes), torch.randn(9, 6, generator=torch.Generator().manual_seed(1))
    assert save(model, tmp_path) == tmp_path / "model.safetensors"
    for path in (tmp_path, tmp_path / "model.safetensors", str(tmp_path)):
        again = load(path)
        assert not again.training and type(again) is FeatureSelector
        assert torch.equal(again(x), model.eval()(x)) and again.tau == 0.35
        assert torch.equal(again.inclusion_probabilities(), model.inclusion_probabilities())
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    again.train()(x, seeds=torch.tensor(9)).sum().backward()  # it can be trained on
    assert again.logits.grad is not None


def test_a_file_may_have_another_name(tmp_path):
    path = tmp_path / "mine"
    assert save(selector(), path) == path
    assert load(path).k == 2


def test_equal_models_have_equal_files(tmp_path):
    model = selector()
    first = save(model, tmp_path / "first").read_bytes()
    assert save(load(tmp_path / "first"), tmp_path / "second").read_bytes() == first


def test_no_random_numbers_are_used_to_load(tmp_path):
    save(selector(), tmp_path)
    state = torch.get_rng_state()
    load(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_kind_says_its_arguments():
    assert len(set(KINDS.values())) == len(KINDS)
    assert json.loads(json.dumps(selector().arguments))["hidden"] == [5, 4]


def test_other_modules_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match="^save: model must be one of FeatureSelector.*; got Linear"
    ):
        save(nn.Linear(2, 2), tmp_path)
    assert not list(tmp_path.iterdir())


def rewritten(path, *, made=None, tensors=None):
    """The same file with other contents and a digest that fits them."""
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    said = {**json.loads(header["khot"]), **(made or {})}
    del said["sha256"]
    values = from_bytes(data) | (tensors or {})
    said["sha256"] = _digest(values, said)
    path.write_bytes(to_bytes(values, {"khot": json.dumps(said)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"made": {"kind": "perceptron"}}, "kind of the model must be one of .*'perceptron'"),
        ({"made": {"arguments": {"n": 6}}}, "got arguments that make no feature_selector"),
        ({"made": {"arguments": [1]}}, "got arguments that make no feature_selector"),
        (
            {"made": {"arguments": {"n": 10**12, "classes": 3, "k": 2}}},
            "got other tensors than a feature_selector has in .*logits",
        ),
        ({"tensors": {"logits": torch.zeros(7)}}, "other tensors .* in logits"),
        ({"tensors": {"logits": torch.zeros(6).double()}}, "other tensors .* in logits"),
        ({"tensors": {"more": torch.zeros(1)}}, "other tensors .* in more"),
    ],
    ids=str,
)
def test_a_file_that_makes_no_model_is_refused(tmp_path, change, message):
    path = save(selector(), tmp_path)
    rewritten(path, **change)
    with pytest.raises(ValueError, match=f"^load: .*{message}"):
        load(path)


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def renamed(data):
    return data.replace(b'\\"k\\": 2', b'\\"k\\": 3')


@pytest.mark.parametrize("damage", [flipped, renamed], ids=lambda damage: damage.__name__)
def test_a_file_that_was_changed_is_refused(tmp_path, damage):
    path = save(selector(), tmp_path)
    data = path.read_bytes()
    path.write_bytes(damage(data))
    assert path.read_bytes() != data
    with pytest.raises(ValueError, match="got contents that do not match their digest"):
        load(path)


@pytest.mark.parametrize(
    "data", [b"", b"no model", to_bytes({"a": torch.ones(1)}), to_bytes({}, {"khot": "{}"})]
)
def test_other_files_are_refused(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match="^load: path must be a whole file of khot.models.save; got"
    ):
        load(path)


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    path = save(selector(), tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="got no file of a model"):
        load(path)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path)

"""Models as files: safetensors, with what makes the model as JSON in its header, and no pickle.

A file has the kind of its model, the arguments of its constructor, and a digest over these and
all tensors: what was cut off or changed is refused.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from khot._checks import refuse
from khot.models.feature_selector import FeatureSelector
from khot.models.sparse_regressor import SparseRegressor
from khot.models.vae import KHotVAE

NAME = "model.safetensors"

# Each has `arguments`: what its constructor takes, by name, as JSON holds it.
KINDS: dict[str, type[nn.Module]] = {
    "feature_selector": FeatureSelector,
    "vae": KHotVAE,
    "sparse_regressor": SparseRegressor,
}


def save(model: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write the model to a file, and return which: `path`, or `model.safetensors` in a directory.

    The file comes to be under another name and is then renamed, so it is never half a model.

    Raises:
        ValueError: the model is of no kind that can be saved.
        OSError: the file cannot be written.
    """
    from safetensors.torch import save as to_bytes

    kinds = {made: kind for kind, made in KINDS.items()}
    if type(model) not in kinds:
        must = f"model must be one of {', '.join(made.__name__ for made in kinds)}"
        refuse("save", must, type(model).__name__)
    tensors = {name: value.cpu().contiguous() for name, value in model.state_dict().items()}
    said = {"kind": kinds[type(model)], "arguments": model.arguments}
    # under one key: safetensors puts several in any order, and equal models have equal files
    text = json.dumps({**said, "sha256": _digest(tensors, said)}, sort_keys=True)
    data = to_bytes(tensors, {"khot": text})
    path = _file(path)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_bytes(data)
    return unfinished.replace(path)


def load(path: str | os.PathLike[str]) -> nn.Module:
    """Return the model in a file, or in `model.safetensors` of a directory, in evaluation mode.

    Raises:
        ValueError: the file is not a whole one of `save`.
        OSError: it cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    data = _file(path).read_bytes()
    try:
        tensors = from_bytes(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        said = json.loads(header["khot"])
        digest = said.pop("sha256")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        _refuse_file("no file of a model", error)
    if digest != _digest(tensors, said):
        _refuse_file("contents that do not match their digest")
    return _made(said, tensors).eval()


def _made(said: dict[str, Any], tensors: dict[str, Tensor]) -> nn.Module:
    kind = said.get("kind")
    if kind not in KINDS:
        refuse("load", f"the kind of the model must be one of {', '.join(KINDS)}", repr(kind))
    try:
        # nothing is allocated, and no first weights are drawn, for what the file replaces
        with torch.device("meta"):
            model = KINDS[kind](**said["arguments"])
    except (TypeError, ValueError, KeyError) as error:
        _refuse_file(f"arguments that make no {kind}", error)
    got, wanted = (
        {name: (value.shape, value.dtype) for name, value in values.items()}
        for values in (tensors, model.state_dict())
    )
    if others := {name for name, _ in got.items() ^ wanted.items()}:
        _refuse_file(f"other tensors than a {kind} has in {', '.join(sorted(others))}")
    model.load_state_dict(tensors, assign=True)
    return model


def _file(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path / NAME if path.is_dir() else path


def _refuse_file(got: str, error: Exception | None = None) -> NoReturn:
    message = f"load: path must be a whole file of khot.models.save; got {got}"
    raise ValueError(message if error is None else f"{message} ({error})") from error


def _digest(tensors: dict[str, Tensor], said: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"\0{name} {value.dtype} {tuple(value.shape)}\0".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

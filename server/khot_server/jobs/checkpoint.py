"""Checkpoints as files: safetensors, with the rest as JSON in its header, and no pickle.

A file is durable (`durable`) before a row of the store speaks of it, so no row ever names a
file that is not there. A digest over all of it tells a file that was damaged later.
"""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from khot.training import Checkpoint
from khot_server.jobs import durable


class CheckpointError(OSError):
    """A file that is not a whole checkpoint."""


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write `path` so that it is durable on return.

    Raises:
        OSError: it cannot be written; what was there under this name still is.
    """
    tensors = {key: value.detach().cpu().contiguous() for key, value in checkpoint.tensors.items()}
    meta = json.dumps(checkpoint.meta, sort_keys=True)
    data = save(tensors, {"meta": meta, "sha256": _digest(tensors, meta)})
    durable.write(path, data)


def read(path: Path) -> Checkpoint:
    """Return the checkpoint in `path`.

    Raises:
        CheckpointError: the file was cut off or damaged.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        meta, digest = header["meta"], header["sha256"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise _damaged(path, str(error)) from error
    if digest != _digest(tensors, meta):
        raise _damaged(path, "contents that do not match their digest")
    return Checkpoint(tensors=tensors, meta=json.loads(meta))


def _damaged(path: Path, got: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {path.name}: must be a whole checkpoint; got {got}")


def _digest(tensors: dict[str, Tensor], meta: str) -> str:
    digest = hashlib.sha256(meta.encode())
    for key, value in sorted(tensors.items()):
        digest.update(f"\0{key} {value.dtype} {tuple(value.shape)}\0".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

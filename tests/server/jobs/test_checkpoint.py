"""Checkpoints come back bit for bit, or are refused."""

import os
import stat

import pytest
import torch

from khot.training import Checkpoint
from khot_server.jobs import checkpoint
from khot_server.jobs.files import checkpoint_name


@pytest.fixture
def made(generator):
    tensors = {
        "weight": torch.randn(3, 5, generator=generator).T,
        "half": torch.randn(4, generator=generator).bfloat16(),
        "step": torch.tensor(7.0),
        "random": torch.get_rng_state()[:16],
        "empty": torch.empty(0, 3),
    }
    return Checkpoint(tensors=tensors, meta={"step": 7, "losses": [0.1, 1e-300], "name": "ä"})


def test_what_was_written_is_read(made, tmp_path):
    path = tmp_path / "jobs" / "x" / checkpoint_name(1, 7)
    checkpoint.write(path, made)
    again = checkpoint.read(path)
    assert again.meta == made.meta
    assert again.tensors.keys() == made.tensors.keys()
    for key, value in made.tensors.items():
        assert again.tensors[key].dtype == value.dtype
        assert torch.equal(again.tensors[key], value)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_file_is_whole_and_synced_before_it_has_its_name(made, tmp_path, monkeypatch):
    path, seen = tmp_path / checkpoint_name(1, 7), []

    def fsync(descriptor):
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, os.fstat(descriptor).st_size > 0, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    checkpoint.write(path, made)
    assert seen == [("file", True, False), ("directory", True, True)]


def test_a_write_that_fails_leaves_what_was_there(made, tmp_path, monkeypatch):
    path = tmp_path / checkpoint_name(1, 7)
    checkpoint.write(path, made)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(path, Checkpoint(tensors={}, meta={"step": 8}))
    assert checkpoint.read(path).meta == made.meta


def test_a_file_cut_off_anywhere_is_refused(made, tmp_path):
    path = tmp_path / checkpoint_name(1, 7)
    checkpoint.write(path, made)
    whole = path.read_bytes()
    for length in (0, 4, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(checkpoint.CheckpointError, match=f"checkpoint {path.name}: must be a"):
            checkpoint.read(path)


def test_a_flipped_bit_anywhere_is_refused(made, tmp_path):
    path = tmp_path / checkpoint_name(1, 7)
    checkpoint.write(path, made)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    # The padding of the header carries nothing; every other bit is told.
    places = [at for at in range(len(whole)) if at >= header or whole[at : at + 1].strip()]
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(checkpoint.CheckpointError, match="must be a whole checkpoint; got"):
            checkpoint.read(path)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        checkpoint.read(tmp_path / "nowhere")

"""The files of a job are there as a whole set or not at all."""

import hashlib
import os
import stat
import subprocess
import sys

import pytest

from khot_server.jobs.artifacts.files import MEDIA_TYPES, publish
from khot_server.jobs.records import Artifact

SET = {"result.json": b"{}\n", "metrics.csv": b"", "curves.png": b"\x89PNG"}


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_what_was_published_is_there_and_recorded(tmp_path):
    directory = tmp_path / "job" / "artifacts"
    model = os.urandom(1000)
    files = {**SET, "model.safetensors": lambda path: path.write_bytes(model)}
    made = publish(directory, files)
    assert contents(directory) == {**SET, "model.safetensors": model}
    assert [artifact.name for artifact in made] == sorted(files)
    assert made[2] == Artifact(
        "model.safetensors", 1000, hashlib.sha256(model).hexdigest(), "application/octet-stream"
    )
    assert made[0].media_type == "image/png" and made[1].size_bytes == 0


def test_a_new_set_takes_the_place_of_the_old_one_and_leaves_nothing_beside(tmp_path):
    directory = tmp_path / "artifacts"
    publish(directory, SET)
    publish(directory, {"report.html": b"new"})
    assert contents(directory) == {"report.html": b"new"}
    assert list(tmp_path.iterdir()) == [directory]


@pytest.mark.parametrize(
    "name", ["../result.json", "a/b.json", ".json", "result", "a.exe", "", "a.json\n", "ä.json"]
)
def test_a_name_that_is_not_plain_is_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(ValueError, match="artifact: name must be a plain name that ends in one of"):
        publish(tmp_path / "artifacts", {"result.json": b"", name: b""})
    assert list(tmp_path.iterdir()) == []


def test_every_kind_of_file_has_a_media_type(tmp_path):
    made = publish(tmp_path / "artifacts", {f"a{suffix}": b"" for suffix in MEDIA_TYPES})
    assert {artifact.media_type for artifact in made} == set(MEDIA_TYPES.values())


def test_a_file_that_cannot_be_written_leaves_the_old_set(tmp_path):
    directory = tmp_path / "artifacts"
    publish(directory, SET)

    def fail(path):
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        publish(directory, {"result.json": b"new", "model.safetensors": fail})
    assert contents(directory) == SET
    assert list(tmp_path.iterdir()) == [directory]


def test_everything_is_synced_before_it_has_its_name(tmp_path, monkeypatch):
    directory, synced = tmp_path / "artifacts", []

    def fsync(descriptor):
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, directory.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    publish(directory, SET)
    assert synced == [("file", False)] * 3 + [("directory", False), ("directory", True)]


CRASH = """
import os, sys
from pathlib import Path
from khot_server.jobs.artifacts.files import publish

directory, first, second = Path(sys.argv[1]), {"a.json": b"1"}, {"a.json": b"2", "b.csv": b"2"}
WATCHED = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"}

def dying(number):
    def hook(event, arguments, count=[0]):
        count[0] += event in WATCHED
        if count[0] == number:
            os._exit(9)
    return hook

found, number, status = set(), 0, 9
while status == 9:
    number += 1
    publish(directory, first)
    if (child := os.fork()) == 0:
        sys.addaudithook(dying(number))
        publish(directory, second)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    there = sorted(directory.iterdir()) if directory.exists() else []
    found.add(tuple((path.name, path.read_bytes()) for path in there))
assert status == 0, status
whole = [tuple(sorted(part.items())) for part in (first, second)]
assert found == {(), *whole}, found
publish(directory, first)
assert list(directory.parent.iterdir()) == [directory]
print(number)
"""


def test_a_crash_at_any_moment_leaves_a_whole_set_or_none(tmp_path):
    """The child dies before its first operation on a file, before its second, and so on."""
    command = [sys.executable, "-c", CRASH, str(tmp_path / "artifacts")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10

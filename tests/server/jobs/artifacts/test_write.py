"""All files of a job, in one call."""

import hashlib
import json
import subprocess
import sys

import pytest

from khot_server.jobs import artifacts

EVERYTHING = {
    "pixels": {"curves.png", "inclusion.png"},
    "table": {"curves.png", "columns.png"},
    "vae": {"curves.png", "reconstructions.png", "samples.png", "units.png", "usage.png"},
}


@pytest.mark.parametrize("kind", EVERYTHING)
def test_everything_is_written_and_recorded(kind, request, tmp_path):
    made, directory = request.getfixturevalue(kind), tmp_path / "artifacts"
    listed = artifacts.write(directory, made)
    names = [artifact.name for artifact in listed]
    assert names == sorted(path.name for path in directory.iterdir())
    rest = {"model.safetensors", "result.json", "metrics.csv", "report.html"}
    assert set(names) == rest | EVERYTHING[kind]
    for artifact in listed:
        data = (directory / artifact.name).read_bytes()
        assert artifact.sha256 == hashlib.sha256(data).hexdigest()
        assert artifact.size_bytes == len(data) > 0
    assert (directory / "model.safetensors").read_bytes() == b"weights"
    assert json.loads((directory / "result.json").read_bytes())["job_id"] == made.job_id
    page = (directory / "report.html").read_text()
    assert page.count("<img ") == len(EVERYTHING[kind])
    assert all(f"({name})" in page for name in EVERYTHING[kind])


def test_the_same_training_leaves_the_same_bytes(pixels, tmp_path):
    first, second = (artifacts.write(tmp_path / name, pixels) for name in ("a", "b"))
    assert first == second


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("khot_server.jobs.artifacts", ("torch", "khot", "matplotlib")),
        ("khot_server.jobs.artifacts.pictures", ("torch", "khot", "matplotlib.pyplot")),
    ],
)
def test_little_is_imported(module, without):
    """In a fresh interpreter: the API process and the runner have no need of these."""
    code = f"import sys, {module}; print([name for name in {without} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

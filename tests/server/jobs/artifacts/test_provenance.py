"""Where a result comes from."""

import hashlib
import platform
from dataclasses import replace
from datetime import UTC, datetime

import torch

import khot
from khot_server.jobs.artifacts import provenance
from khot_server.jobs.spec import FeatureSelectionSpec, spec_to_json

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SPEC = FeatureSelectionSpec(dataset="digits", k=10, seed=7)


def of(spec):
    known = {"data_sha256": "ab" * 32, "device": "cuda:0", "threads": 3}
    return provenance(spec, **known, start_time=NOW, end_time=NOW)


def test_it_names_the_versions_that_ran():
    made = of(SPEC)
    assert made.khot == khot.__version__
    assert made.torch == torch.__version__
    assert made.python == platform.python_version()


def test_it_names_data_device_threads_and_seed():
    made = of(SPEC)
    assert (made.data_sha256, made.device, made.threads, made.seed) == ("ab" * 32, "cuda:0", 3, 7)


def test_equal_specs_have_equal_hashes_and_others_do_not():
    assert of(SPEC).spec_sha256 == hashlib.sha256(spec_to_json(SPEC).encode()).hexdigest()
    assert of(replace(SPEC)).spec_sha256 == of(SPEC).spec_sha256
    assert of(replace(SPEC, k=11)).spec_sha256 != of(SPEC).spec_sha256

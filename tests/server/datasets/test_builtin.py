"""What is built in is what is told of it, on every machine."""

import hashlib

import numpy as np
import pytest

from khot_server.datasets import builtin
from khot_server.datasets.describe import describe_numbers
from khot_server.datasets.records import DatasetNotFound
from khot_server.datasets.table import load


def check(name: str, table) -> None:
    """The summary and the checksum are those of the values."""
    told = builtin.dataset(name)
    assert table.summary == told.summary and table.sha256 == told.sha256
    assert told.tenant is None and told.row_id is None and told.create_time is None
    bare = builtin.dataset(name, columns=False)
    assert bare.summary == told.summary.without_columns()
    summary = told.summary
    *features, target = summary.names()
    assert len(features) == summary.features and target == summary.target
    x, y = table.matrix(features), table.numbers(target)
    assert x.shape == (summary.rows, summary.features)
    assert describe_numbers(target, y) == summary.by_name[target]
    if summary.pixels is not None:
        pixels, least, most = summary.pixels, x.min(0), x.max(0)
        assert (pixels.min, pixels.max, pixels.missing) == (x.min(), x.max(), np.isnan(x).sum())
        assert pixels.constant == (least == most).sum()
    digest = hashlib.sha256(x.data)
    digest.update(y.astype(np.int64).data)
    assert digest.hexdigest() == told.sha256


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_what_needs_no_files_is_as_told(name, tmp_path):
    check(name, load(name, tmp_path, None))


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_files_are_as_told(name, tmp_path, data_dir):
    check(name, load(name, tmp_path, data_dir))
    assert not any(tmp_path.iterdir()), "and nothing was downloaded"


@pytest.mark.parametrize("name", ["iris", "", "../datasets", "0" * 32, "a/b"])
def test_what_is_not_there_is_not_found(name, tmp_path):
    with pytest.raises(DatasetNotFound, match="must be built in or uploaded"):
        load(name, tmp_path, None)

"""The table of a data set, built in or uploaded."""

import re
from pathlib import Path

from khot_server.datasets import builtin
from khot_server.datasets.frame import Table
from khot_server.datasets.records import DatasetNotFound
from khot_server.datasets.stored import read_table

__all__ = ["Table", "dataset_directory", "load"]


def dataset_directory(state_dir: Path, dataset_id: str) -> Path:
    """Return where an uploaded data set is."""
    return state_dir / "datasets" / dataset_id


def load(dataset_id: str, state_dir: Path, data_dir: Path | None) -> Table:
    """Return the table of a data set.

    Args:
        dataset_id: made by `DatasetStore`, or the name of a built-in one.
        state_dir: where uploads are, and what was downloaded.
        data_dir: where to look for the files of built-in ones first.

    Raises:
        DatasetNotFound: there is none of that id.
        OSError: its files are neither here nor to be had.
    """
    if dataset_id in builtin.NAMES:
        return builtin.load(dataset_id, state_dir, data_dir)
    directory = dataset_directory(state_dir, dataset_id)
    # an id is part of a path, so nothing else may pass for one
    if not re.fullmatch("[0-9a-f]{32}", dataset_id) or not directory.is_dir():
        must = "must be built in or uploaded, and not deleted"
        raise DatasetNotFound(f"dataset: {must}; got {dataset_id!r}")
    return read_table(directory)

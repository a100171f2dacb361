"""Data sets: uploads of every kind of source by both clients, and over broken connections."""

import os
import signal
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from processes import Server, wait_until
from scipy.sparse import csr_array

from khot_client import (
    Client,
    Dataset,
    FeatureSelection,
    InvalidRequest,
    NotFound,
    RequestError,
    TransferFailed,
)
from khot_client.sources import open_source

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = (X[:, 1] > 0).astype(np.int64)
WORDS, HALF, DAYS = ["x", "y"] * 20, [1, None] * 20, pd.date_range("2026", periods=40)
# A table of each library, and what its columns are: type, and how many values are missing.
FRAMES = {
    "pandas": (
        pd.DataFrame(
            {
                "number": X[:, 0],
                "truth": pd.Series([True, None] * 20, dtype="boolean"),
                "nullable": pd.Series(HALF, dtype="Int64"),
                "word": pd.Series(["x", None] * 20),
                "object": pd.Series(WORDS, dtype=object),
                "numbers as objects": pd.Series([1, 2.5] * 20, dtype=object),
                "category": pd.Series(WORDS, dtype="category"),
                "category of numbers": pd.Series([1, 2] * 20, dtype="category"),
                "day": DAYS,
            }
        ),
        {
            "number": ("float", 0),
            "truth": ("boolean", 20),
            "nullable": ("integer", 20),
            "word": ("text", 20),
            "object": ("text", 0),
            "numbers as objects": ("float", 0),
            "category": ("text", 0),
            "category of numbers": ("integer", 0),
            "day": ("text", 0),
        },
    ),
    "polars": (
        pl.DataFrame(
            {
                "number": X[:, 0],
                "truth": [True, None] * 20,
                "nullable": HALF,
                "word": ["x", None] * 20,
                "category": pl.Series(WORDS, dtype=pl.Categorical),
                "day": DAYS.to_list(),
            }
        ),
        {
            "number": ("float", 0),
            "truth": ("boolean", 20),
            "nullable": ("integer", 20),
            "word": ("text", 20),
            "category": ("text", 0),
            "day": ("text", 0),
        },
    ),
}


def test_arrays_become_a_table(face):
    told = []
    data = face.upload(
        X, Y, columns=["p", "q", "r"], name="arrays", progress=lambda *n: told.append(n)
    )
    assert isinstance(data, Dataset) and (data.name, data.rows, data.column_count) == (
        "arrays",
        40,
        4,
    )
    assert [column.name for column in data.columns][:3] == ["p", "q", "r"]
    assert data.columns[0].type == "float" and data.columns[0].mean == pytest.approx(X[:, 0].mean())
    assert told[-1] == (data.size_bytes, data.size_bytes)
    job = face.submit(FeatureSelection(data.id, k=1, epochs=1, references=False))
    assert job.wait().features.shape == (1,)
    job.delete()  # no job of another test's list is to be without its data
    assert data.id in [listed.id for listed in face.datasets()]
    assert face.dataset(data.id) == data
    face.delete_dataset(data.id)
    with pytest.raises(NotFound, match="must be a data set of"):
        face.dataset(data.id)


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("library", FRAMES)
def test_columns_of_a_frame_become_what_they_mean(client, library, form):
    frame, means = FRAMES[library]
    data = client.upload(frame, name=f"{library} {form}", format=form)
    found = {column.name: (column.type, column.missing) for column in data.columns}
    assert found == means and data.rows == 40
    assert data.columns[0].mean == pytest.approx(X[:, 0].mean())


def test_a_frame_of_either_client_is_a_table(face):
    columns = {"a": X[:, 0], "b": X[:, 1], "word": WORDS, "day": DAYS, "label": Y}
    frame = pd.DataFrame(columns)
    data = face.upload(frame, name="a frame")
    spec = FeatureSelection(data.id, k=1, target="label")
    with pytest.raises(InvalidRequest, match="ignore: must name all columns of text; got not 'wor"):
        face.validate(spec)
    assert face.validate(replace(spec, ignore=("word", "day"))).spec.k == 1


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            pd.DataFrame({"v": [1, "x"]}),
            "data: must be a table of .*; got .*column v with type obj",
        ),
        (pd.DataFrame({"v": [1j, 2j]}), "data: must be a table of .*; got .*type complex128"),
        (pd.DataFrame(X[:, :2], columns=["a", "a"]), "data: .*; got Duplicate column names found"),
        (pl.DataFrame({"v": [object()]}), "data: must be a table of .*; got cannot write 'Object'"),
        (
            pl.LazyFrame({"v": Y}),
            "data: must be .* a DataFrame of pandas or polars, .*got LazyFrame",
        ),
        (csr_array(X), "data: must be numbers of shape .*; got csr_array"),
    ],
)
def test_a_frame_that_is_no_table_is_refused(frame, message):
    with pytest.raises(InvalidRequest, match=message):
        open_source(frame)


def test_a_column_that_the_server_cannot_read_is_named(client):
    with pytest.raises(InvalidRequest, match="column 'v': must be numbers, .*; got duration"):
        client.upload(pd.DataFrame({"v": pd.to_timedelta(Y)}))


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (pd.Series(WORDS, dtype="category"), "U"),
        (pd.Series(WORDS, dtype=object), "U"),
        (pl.Series(WORDS), "U"),
        (pd.Series([1, 2] * 20, dtype="Int64"), "i"),
        (pd.Series([1, 2.5] * 20, dtype=object), "f"),
        (pd.Series([True, False] * 20, dtype="boolean", index=range(5, 45)), "b"),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_a_target_is_a_column_of_any_library(target, kind):
    with closing(open_source(X, target, pd.Index(["p", "q", "r"])).file) as file:
        file.seek(0)
        with np.load(file, allow_pickle=False) as written:
            assert written["y"].dtype.kind == kind and written["y"].tolist() == target.to_list()
            assert written["names"].tolist() == ["p", "q", "r"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["x", None] * 20, "target: must have a value in every place; got some without one"),
        (pd.Series(["x", pd.NA] * 20), "target: must have a value in every place"),
        (pd.Series([1, "x"] * 20), "target: must be all numbers or all text; got .* int, str"),
        (pd.Series([[1], [1, 2]] * 20), "target: must be an array; got .*inhomogeneous"),
        (pd.Series([np.ones(2)] * 40), "target: must be all numbers or all text; got .* ndarray"),
        (pd.Series([Decimal(1)] * 40), "target: must be all numbers or all text; got .* Decimal"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(target, message):
    with pytest.raises(InvalidRequest, match=message):
        open_source(X, target)


def test_a_frame_goes_as_text_where_there_is_no_pyarrow(monkeypatch):
    monkeypatch.setattr("khot_client.sources.find_spec", lambda name: None)
    source = open_source(pd.DataFrame({"a": X[:, 0], "label": Y}))
    with closing(source.file) as file:
        file.seek(0)
        header, *rows = file.read().splitlines()
    assert (source.format, header, len(rows)) == ("csv", b"a,label", 40)


def test_pictures_have_a_shape(face):
    data = face.upload(RNG.random((20, 4, 5)), np.arange(20) % 2, name="pictures")
    assert data.example_shape == (4, 5)


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_a_file_goes_as_it_is(face, tmp_path, suffix):
    path = tmp_path / f"table.{suffix}"
    if suffix == "npz":
        np.savez(path, x=X, y=Y)
    else:
        getattr(pl.DataFrame({"a": X[:, 0], "label": Y}), f"write_{suffix}")(path)
    data = face.upload(path)
    assert data.name == path.name and data.size_bytes == path.stat().st_size
    assert face.upload(str(path), name="another").id != data.id
    assert face.upload(path).id == data.id, "the same data of the same name is the same upload"


@pytest.mark.parametrize(
    ("data", "more", "message"),
    [
        ("table.txt", {}, "path: must end in .npz, .csv, .parquet, or come with its format"),
        ("table.csv", {"target": Y}, "must be left out with a file.*say target= in the spec"),
        (X, {"format": "csv"}, "format: must be npz for arrays"),
        (X, {"format": "zip"}, "format: must be one of npz, csv, parquet; got 'zip'"),
        ([1.0, 2.0], {}, r"data: must be numbers of shape .*; got float64 of shape \(2,\)"),
        ([[1.0], [2.0, 3.0]], {}, "data: must be an array; got .*inhomogeneous"),
        (np.array([["a"]]), {}, "data: must be numbers of shape"),
        (
            pd.DataFrame(X),
            {"format": "npz"},
            "format: must be parquet or csv for a DataFrame",
        ),
        (X, {"columns": ["a"]}, "names"),
    ],
)
def test_what_is_no_table_is_refused(face, data, more, message):
    with pytest.raises(InvalidRequest, match=message):
        face.upload(data, **more)


def test_a_file_that_cannot_be_read_is_told(face, tmp_path):
    with pytest.raises(TransferFailed, match=r"must be a file that can be read; got .*Check the"):
        face.upload(tmp_path / "none.csv")


def test_an_error_of_the_caller_s_own_progress_is_his(face):
    def progress(done: int, total: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        face.upload(X, Y, name="interrupted", progress=progress)
    assert face.upload(X, Y, name="interrupted").rows == 40, "and it can be gone on with"


def test_lists_end_at_their_limit(face):
    face.upload(X, Y, name="listed")
    assert len(list(face.datasets(limit=1))) == 1 and list(face.datasets(limit=0)) == []
    builtin = [data for data in face.datasets() if data.create_time is None]
    assert "digits" in [data.id for data in builtin] and builtin[0].columns == ()


def test_a_data_set_in_use_is_not_deleted(face):
    data = face.upload(X, Y, name="used")
    job = face.submit(FeatureSelection(data.id, k=1, epochs=10_000, patience=0))
    try:
        with pytest.raises(RequestError, match="must not be needed by a job that has not ended"):
            face.delete_dataset(data.id)
    finally:
        job.cancel()


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A server to be killed."""
    running = Server(tmp_path_factory.mktemp("state")).wait_until_serving()
    try:
        yield running
    finally:
        running.end()


def test_an_upload_goes_on_over_the_death_of_the_server(faces, own):
    x, told, killed = RNG.normal(size=(1_500_000, 2)), [], []  # 24 MB

    def progress(done: int, total: int) -> None:
        told.append(done)
        if done > total // 2 and not killed:
            os.kill(own.pids()["api"], signal.SIGKILL)
            killed.append(len(told))

    data = faces(own.address).upload(x, name=f"large {faces.name}", progress=progress)
    assert data.rows == 1_500_000 and told[-1] == data.size_bytes
    assert min(told[killed[0] :]) > 2 << 20, "it did not begin anew"


def test_another_process_goes_on_with_an_upload(own):
    """The first one leaves in the middle."""
    x = RNG.normal(size=(1_000_000, 2))

    def leave(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with Client(own.address) as client, pytest.raises(KeyboardInterrupt):
        client.upload(x, name="left", progress=leave)
    told = []
    with Client(own.address) as client:
        wait_until(lambda: not own.in_flight("UploadDataset"), "the server to see that it broke")
        data = client.upload(x, name="left", progress=lambda done, total: told.append(done))
    assert data.rows == 1_000_000 and told[0] > 1 << 20

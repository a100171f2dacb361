"""Files of pictures: found, or downloaded once and only if they are the right ones."""

import gzip
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from khot_server.datasets import builtin, idx


def idx_bytes(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


ARRAYS = [
    np.arange(24).reshape(6, 2, 2),
    np.arange(6),
    np.arange(8).reshape(2, 2, 2) + 100,
    np.arange(2) + 7,
]
CONTENTS = [idx_bytes(array) for array in ARRAYS]


class Files(SimpleHTTPRequestHandler):
    """A file server that keeps a list of what was asked for."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        super().do_GET()

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A file server, with its folder, its URL and what it was asked for."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")  # no proxy knows our loopback
    folder = tmp_path / "served"
    (folder / "tiny").mkdir(parents=True)
    for name, data in zip(idx.FILES, CONTENTS, strict=True):
        (folder / "tiny" / f"{name}.gz").write_bytes(gzip.compress(data))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
    server.asked, server.folder = [], folder
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def source(served):
    sha256 = tuple(hashlib.sha256(data).hexdigest() for data in CONTENTS)
    return idx.Source("tiny", f"{served.url}/tiny", sha256)


def same(found: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, ARRAYS, strict=True))


def files(folder) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_files_are_downloaded_once_and_then_work_offline(served, source, tmp_path):
    cache = tmp_path / "cache"
    assert same(idx.read(source, None, cache))
    assert served.asked == [f"/tiny/{name}.gz" for name in idx.FILES]
    assert files(cache) == set(idx.FILES)
    offline = idx.Source("tiny", "http://127.0.0.1:1/tiny", source.sha256)
    assert same(idx.read(offline, None, cache))
    assert len(served.asked) == 4


def test_files_that_are_there_are_not_downloaded(served, source, tmp_path):
    """However they were compressed: the checksum is of what is inside."""
    data_dir = tmp_path / "data"
    (data_dir / "tiny").mkdir(parents=True)
    for name, data in zip(idx.FILES, CONTENTS, strict=True):
        (data_dir / "tiny" / f"{name}.gz").write_bytes(gzip.compress(data, 1, mtime=5))
    assert same(idx.read(source, data_dir, tmp_path / "cache"))
    assert not served.asked and not (tmp_path / "cache").exists()


def test_another_place_can_be_named(served, source, tmp_path, monkeypatch):
    monkeypatch.setenv("KHOT_DATA_URL", served.url)
    elsewhere = idx.Source("tiny", "http://127.0.0.1:1/nowhere", source.sha256)
    assert same(idx.read(elsewhere, None, tmp_path / "cache"))
    assert served.asked[0] == f"/tiny/{idx.FILES[0]}.gz"


WRONG = {
    "other contents": gzip.compress(CONTENTS[0][:-1] + b"x"),
    "no gzip": b"<html>not found</html>",
    "cut off": gzip.compress(CONTENTS[0])[:-9],
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_of_a_wrong_download_nothing_is_kept(served, source, tmp_path, data):
    (served.folder / "tiny" / f"{idx.FILES[0]}.gz").write_bytes(data)
    with pytest.raises(idx.BadFile, match="tiny: its files must be in data-dir, or at http"):
        idx.read(source, None, tmp_path / "cache")
    assert files(tmp_path / "cache") == set()


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_a_wrong_file_that_is_there_is_refused(source, tmp_path, data):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / f"{idx.FILES[0]}.gz").write_bytes(data)
    with pytest.raises(idx.BadFile, match="must be"):
        idx.read(source, tmp_path, tmp_path / "cache")


def test_a_damaged_file_of_the_cache_is_downloaded_again(served, source, tmp_path):
    idx.read(source, None, tmp_path / "cache")
    (tmp_path / "cache" / "tiny" / idx.FILES[1]).write_bytes(b"damaged")
    assert same(idx.read(source, None, tmp_path / "cache"))
    assert served.asked[4:] == [f"/tiny/{idx.FILES[1]}.gz"]


def test_a_bomb_is_not_unpacked(served, source, tmp_path, monkeypatch):
    monkeypatch.setattr(idx, "MAX_BYTES", 1000)
    (served.folder / "tiny" / f"{idx.FILES[0]}.gz").write_bytes(gzip.compress(bytes(10_000)))
    with pytest.raises(idx.BadFile, match="must unpack to at most 1000 bytes"):
        idx.read(source, None, tmp_path / "cache")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/tiny", "{}/nothing"])
def test_without_files_it_is_told_where_they_could_be(served, source, tmp_path, url):
    nowhere = idx.Source("tiny", url.format(served.url), source.sha256)
    with pytest.raises(OSError, match="tiny: its files must be in data-dir, or at http.*; got"):
        idx.read(nowhere, None, tmp_path / "cache")


def test_pictures_to_test_with_are_the_last_rows(served, source, tmp_path, monkeypatch):
    monkeypatch.setattr(idx, "MNIST", source)
    monkeypatch.setattr(builtin, "_TOLD", {"mnist": TINY})
    table = builtin.load("mnist", tmp_path, None)
    x = table.matrix([*TINY.names()][:-1])
    np.testing.assert_array_equal(x[-2:], (ARRAYS[2].reshape(2, 4) / 255).astype(np.float32))
    assert table.numbers("label").tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert (tmp_path / "downloads" / "tiny").is_dir()


TINY = builtin.Summary(
    rows=8,
    test_rows=2,
    column_count=5,
    target="label",
    columns=(builtin._label(0.0, ("0", 1)),),
    example_shape=(2, 2),
    pixels=builtin.Pixels(min=0.0, max=1.0, constant=0),
)

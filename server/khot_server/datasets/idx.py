"""MNIST and Fashion-MNIST: four IDX files each, found in a directory or downloaded once.

The checksums are of what is in the gzip files: the same pictures are around in many
compressions, and these are their bytes in all of them. What is downloaded is kept
uncompressed, under a name that it only gets when its checksum is right.
"""

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
URL_VARIABLE = "KHOT_DATA_URL"  # where to download from instead, as URL/mnist/FILE.gz
MAX_BYTES = 1 << 26  # of a file, uncompressed; the largest has 47 MB


class BadFile(OSError):
    """A file that is not the one of that name."""


@dataclass(frozen=True)
class Source:
    """The files of a data set.

    Attributes:
        name: of the data set, and of the directory that has them.
        url: of that directory on the internet.
        sha256: of each of FILES, uncompressed.
    """

    name: str
    url: str
    sha256: tuple[str, str, str, str]


MNIST = Source(
    "mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
FASHION_MNIST = Source(
    "fashion-mnist",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)


def read(source: Source, data_dir: Path | None, cache_dir: Path) -> list[NDArray[np.uint8]]:
    """Return the arrays of FILES.

    Args:
        source: which files.
        data_dir: has them in a directory of the data set's name, as .gz, or does not.
        cache_dir: where they are downloaded to if it does not.

    Raises:
        BadFile: one is not what it should be.
        OSError: they are not there and cannot be downloaded.
    """
    return [
        _array(_contents(source, name, sha256, data_dir, cache_dir))
        for name, sha256 in zip(FILES, source.sha256, strict=True)
    ]


def _contents(
    source: Source, name: str, sha256: str, data_dir: Path | None, cache_dir: Path
) -> bytes:
    given = None if data_dir is None else data_dir / source.name / f"{name}.gz"
    if given is not None and given.is_file():
        data = _unpacked(given)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BadFile(f"{given}: must be the file of {source.name}; got another")
        return data
    kept = cache_dir / source.name / name
    if kept.is_file() and hashlib.sha256(data := kept.read_bytes()).hexdigest() == sha256:
        return data
    _download(source, name, sha256, kept)
    return kept.read_bytes()


def _download(source: Source, name: str, sha256: str, kept: Path) -> None:
    import pooch

    base = os.environ.get(URL_VARIABLE)
    url = f"{base}/{source.name}/{name}.gz" if base else f"{source.url}/{name}.gz"
    must = f"{source.name}: its files must be in data-dir, or at {url}"

    def fetch(url: str, output_file: str, asker: Any) -> None:
        packed = Path(f"{output_file}.gz")
        try:
            pooch.HTTPDownloader()(url, str(packed), asker)
            Path(output_file).write_bytes(_unpacked(packed))
        finally:
            packed.unlink(missing_ok=True)

    try:
        pooch.retrieve(url, f"sha256:{sha256}", kept.name, kept.parent, downloader=fetch)
    except (BadFile, ValueError) as error:  # the latter of the checksum
        raise BadFile(f"{must}; got: {error}") from None
    except OSError as error:  # those of requests are such, too
        raise OSError(f"{must}; got: {error}") from error


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadFile(f"{path.name}: must be gzip; got: {error}") from None
    if len(data) > MAX_BYTES:
        raise BadFile(f"{path.name}: must unpack to at most {MAX_BYTES} bytes; got more")
    return data


def _array(data: bytes) -> NDArray[np.uint8]:
    """What is in an IDX file: a magic number, its sizes, big-endian, and its bytes."""
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", dimensions, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)

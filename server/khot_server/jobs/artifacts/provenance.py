"""Where a result comes from: all that is needed to get it again."""

import hashlib
import platform
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata

from khot_server.jobs.spec import Spec, spec_to_json


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What made a result.

    Attributes:
        khot, torch, numpy, python: versions.
        platform: system and processor.
        data_sha256: of the data set, hexadecimal.
        spec_sha256: of the one text of the specification, `spec_to_json`.
        device: such as `cpu`.
        threads: of torch.
        seed: of the training.
        start_time: of the attempt that ended the training, which may have gone on from others.
        end_time: of the training.
    """

    khot: str
    torch: str
    numpy: str
    python: str
    platform: str
    data_sha256: str
    spec_sha256: str
    device: str
    threads: int
    seed: int
    start_time: datetime
    end_time: datetime


def provenance(
    spec: Spec,
    *,
    data_sha256: str,
    device: str,
    threads: int,
    start_time: datetime,
    end_time: datetime,
) -> Provenance:
    """Return the provenance of what is made here and now; times have a zone."""
    return Provenance(
        khot=metadata.version("khot"),
        torch=metadata.version("torch"),
        numpy=metadata.version("numpy"),
        python=platform.python_version(),
        platform=platform.platform(),
        data_sha256=data_sha256,
        spec_sha256=hashlib.sha256(spec_to_json(spec).encode()).hexdigest(),
        device=device,
        threads=threads,
        seed=spec.seed,
        start_time=start_time,
        end_time=end_time,
    )

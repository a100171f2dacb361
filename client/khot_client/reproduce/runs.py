"""A run of an experiment: a job with a seed, known by all that it is to do. No I/O."""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from khot_client.specs import Spec

DIGEST = 16  # characters of a hash: labels have at most 63


@dataclass(frozen=True)
class Run:
    """A job that an experiment needs.

    Attributes:
        method: what its row is called, most often the estimator.
        spec: all of what it is to do.
        note: what it has of its own among the runs of its method, for people.
    """

    method: str
    spec: Spec
    note: str = ""

    @property
    def dataset(self) -> str:
        return self.spec.dataset

    @property
    def seed(self) -> int:
        return self.spec.seed or 0

    @property
    def settings(self) -> str:
        """All that was asked for, as JSON: two runs with the same are the same run."""
        return _json(given(self.spec))

    @property
    def common(self) -> str:
        """What it shares with the runs that differ from it in their seeds alone, in short."""
        return digest(without(self.settings, ("seed",)))

    def __str__(self) -> str:
        parts = [f"{self.method} on {self.dataset}", self.note, f"seed {self.seed}"]
        return ", ".join(part for part in parts if part)


def given(spec: Spec) -> dict[str, Any]:
    """The kind of a spec, and what it does not leave to the server."""
    return {"kind": spec.kind, **{k: v for k, v in vars(spec).items() if v is not None}}


def without(settings: str, names: Collection[str]) -> str:
    """The settings but for some, as JSON."""
    return _json({k: v for k, v in json.loads(settings).items() if k not in names})


def digest(*texts: str) -> str:
    """A short name for texts, the same in every process."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:DIGEST]


def in_groups(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs in their order, those together that differ in their seeds alone."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.common, []).append(run)
    return list(groups.values())


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))

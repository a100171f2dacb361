"""Groups of jobs: from one spec, seeds and a grid to many specs, and from results to a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, product
from statistics import fmean, stdev
from typing import Any

from khot_server.jobs.records import Group, Job
from khot_server.jobs.results import MORE_IS_BETTER, VaeResult
from khot_server.jobs.spec import Spec, SpecError
from khot_server.jobs.tagged import frozen

MAX_JOBS = 100


@dataclass(frozen=True)
class Spread:
    """Where the values of several jobs lie."""

    mean: float
    deviation: float
    best: float
    best_job_id: str


@dataclass(frozen=True)
class Row:
    """The results of jobs that differ in their seeds alone.

    Attributes:
        values: the fields of the grid, by name.
        agreement: mean Jaccard similarity of the choices, pair by pair; None without a pair.
    """

    values: Mapping[str, Any]
    jobs: int
    succeeded: int
    test: Mapping[str, Spread]
    agreement: float | None


def expand(spec: Spec, seeds: Sequence[int], grid: Mapping[str, Sequence[str]]) -> list[Spec]:
    """Return a spec for each combination of the grid, and of each one for every seed.

    Args:
        spec: what they have in common.
        seeds: none: the spec's own.
        grid: values as JSON, by the field of the spec.

    Raises:
        SpecError: there would be too many, two would be the same, or one cannot be.
    """
    known = {field.name for field in fields(spec)}
    for name, values in grid.items():
        if name not in known - {"seed"}:
            must = f"must be a field of {spec.kind} and not its seed, which has its own place"
            raise SpecError("grid", must, repr(name))
        if not values:
            raise SpecError(f"grid.{name}", "must have a value", "none")
    seeds = seeds or [spec.seed]
    made = [
        replace(spec, **dict(zip(grid, combination, strict=True)), seed=seed)
        for combination in product(*([_value(name, v) for v in grid[name]] for name in grid))
        for seed in seeds
    ]
    if len(made) > MAX_JOBS:
        raise SpecError("grid", f"must make at most {MAX_JOBS} jobs", len(made))
    if len(set(made)) < len(made):
        raise SpecError("grid", "must make no job twice", "the same values again")
    return made


def _value(name: str, text: str) -> Any:
    try:
        return frozen(json.loads(text))
    except ValueError:
        must = 'values must be JSON, such as 10 or "simple"'
        raise SpecError(f"grid.{name}", must, repr(text)) from None


def summarize(group: Group) -> list[Row]:
    """Return a row for each combination of the grid, in its order."""
    rows: dict[str, list[Job]] = {}
    for job in group.jobs:
        rows.setdefault(json.dumps(_values(group, job)), []).append(job)
    return [_row(_values(group, jobs[0]), jobs) for jobs in rows.values()]


def _values(group: Group, job: Job) -> dict[str, Any]:
    return {name: getattr(job.spec, name) for name in group.axes}


def _row(values: Mapping[str, Any], jobs: Sequence[Job]) -> Row:
    done = [(job.id, job.result) for job in jobs if job.result is not None]
    names = {name for _, result in done for name in result.test}
    test = {
        name: _spread(name, {job_id: result.test[name] for job_id, result in done})
        for name in sorted(names)
    }
    chosen = [set(r.features) for _, r in done if not isinstance(r, VaeResult)]
    pairs = [len(a & b) / len(a | b) for a, b in combinations(chosen, 2)]
    return Row(values, len(jobs), len(done), test, fmean(pairs) if pairs else None)


def _spread(name: str, values: Mapping[str, float]) -> Spread:
    order = max if name in MORE_IS_BETTER else min
    best = order(values, key=lambda job_id: values[job_id])
    deviation = stdev(values.values()) if len(values) > 1 else 0.0
    return Spread(fmean(values.values()), deviation, values[best], best)

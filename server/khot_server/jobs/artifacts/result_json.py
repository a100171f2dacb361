"""result.json: all that was found, as strict JSON, for whoever has no more than that.

    job_id, kind
    spec          what was asked for; what is absent had its default
    config        the same with every default
    result        what was found. A score of null is one of -inf: the feature is constant
    apply         of a feature selection: how to get the chosen features of new rows
        columns       features a row has, before the choice
        features      indices of the chosen ones among them, ascending
        names         of the chosen ones
        fill          what stands for a missing value of each chosen one; null: none may be missing
        mean, scale   of each chosen one; 0 and 1 where nothing was standardized
                  of a sparse regression: columns, features, names and fill as above, and
        coefficients  of each chosen one
        intercept     0 if there is none
        target        the name of what is predicted
    provenance    versions, hashes, device, times

With `rows` (m, columns) a chosen feature is what the trained network saw after

    values = rows[:, features]
    values = numpy.where(numpy.isnan(values), fill, values)      # unless fill is null
    values = (values - mean) / scale

and what a sparse regression predicts, with numpy.array(coefficients), is

    values @ coefficients + intercept                            # of those before mean and scale
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from khot_server.jobs.artifacts.made import Floats, Made
from khot_server.jobs.results import FeatureSelectionResult, SparseRegressionResult
from khot_server.jobs.spec import spec_to_json


def result_json(made: Made) -> bytes:
    """Return the contents of result.json."""
    kind = made.result.kind
    content: dict[str, Any] = {
        "job_id": made.job_id,
        "kind": kind,
        "spec": json.loads(spec_to_json(made.spec))[kind],
        "config": made.config,
        "result": asdict(made.result),
    }
    if isinstance(made.result, FeatureSelectionResult | SparseRegressionResult):
        content["apply"] = _apply(made, made.result)
    content["provenance"] = asdict(made.provenance)
    return (_text(_strict(content)) + "\n").encode()


def _apply(made: Made, result: FeatureSelectionResult | SparseRegressionResult) -> dict[str, Any]:
    data, chosen = made.data, list(result.features)

    def of_chosen(values: Floats) -> list[float]:
        return [float(values[feature]) for feature in chosen]

    common = {
        "columns": len(result.scores),
        "features": chosen,
        "names": result.names,
        "fill": None if data.fill is None else of_chosen(data.fill),
    }
    if isinstance(result, SparseRegressionResult):
        return common | {
            "coefficients": result.coefficients,
            "intercept": result.intercept,
            "target": result.target,
        }
    return common | {
        "mean": [0.0] * len(chosen) if data.mean is None else of_chosen(data.mean),
        "scale": [1.0] * len(chosen) if data.scale is None else of_chosen(data.scale),
    }


def _strict(value: Any) -> Any:
    """The value with nothing in it that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): _strict(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, datetime) else value


def _text(value: Any, indent: str = "") -> str:
    """Objects over lines, lists on one: there are long ones of numbers."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, allow_nan=False)
    inner = indent + "  "
    lines = (f"{inner}{json.dumps(key)}: {_text(part, inner)}" for key, part in value.items())
    return "{\n" + ",\n".join(lines) + "\n" + indent + "}"

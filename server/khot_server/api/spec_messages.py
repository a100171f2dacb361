"""Specs and results of jobs <-> the messages of job_spec.proto.

The fields of a spec have the names of its message, so what a message does not have stays at
the spec's default.
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

from khot_proto.plain import from_plain, to_plain
from khot_proto.v1 import job_spec_pb2 as pb
from khot_server.errors import InvalidArgument
from khot_server.jobs.results import FeatureSelectionResult, Metrics, Result, SparseRegressionResult
from khot_server.jobs.spec import KINDS, Spec, SpecError


def spec_from_message(message: pb.JobSpec) -> Spec:
    """The specification, checked.

    Raises:
        InvalidArgument: it names no kind, or a field is not as it must be.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        known = ", ".join(KINDS)
        raise InvalidArgument("spec.kind", f"spec.kind: must be one of {known}; got none")
    try:
        return KINDS[kind](**to_plain(getattr(message, kind)))
    except SpecError as error:
        raise invalid_spec(error) from None


def invalid_spec(error: SpecError) -> InvalidArgument:
    return InvalidArgument(f"spec.{error.field}", f"spec.{error}")


@lru_cache(maxsize=1024)  # pages of jobs are asked for again and again
def spec_message(spec: Spec) -> pb.JobSpec:
    """The specification as a caller sees it; what is absent has the library's default.

    It is the same message each time, to be put into others and not to be changed.
    """
    message = pb.JobSpec()
    values = {field.name: getattr(spec, field.name) for field in fields(spec)}
    from_plain(getattr(message, spec.kind), values)
    return message


def result_message(result: Result) -> pb.JobResult:
    """The result as a caller sees it."""
    message = pb.JobResult(warnings=result.warnings)
    if isinstance(result, FeatureSelectionResult):
        message.feature_selection.CopyFrom(
            pb.FeatureSelectionResult(
                features=result.features,
                names=result.names,
                scores=result.scores,
                inclusion_probabilities=result.inclusion_probabilities,
                feature_shape=result.feature_shape,
                test=result.test,
                validation=result.validation,
                references=_references(result.references),
                stability=result.stability,
                epochs_run=result.epochs_run,
                classes=result.classes,
            )
        )
    elif isinstance(result, SparseRegressionResult):
        message.sparse_regression.CopyFrom(
            pb.SparseRegressionResult(
                features=result.features,
                names=result.names,
                coefficients=result.coefficients,
                intercept=result.intercept,
                target=result.target,
                scores=result.scores,
                inclusion_probabilities=result.inclusion_probabilities,
                test=result.test,
                validation=result.validation,
                references=_references(result.references),
                stability=result.stability,
                epochs_run=result.epochs_run,
            )
        )
    else:
        message.vae.CopyFrom(
            pb.VaeResult(
                test=result.test,
                validation=result.validation,
                usage=result.usage,
                usage_shape=result.usage_shape,
                epochs_run=result.epochs_run,
            )
        )
    return message


def _references(references: Mapping[str, Metrics]) -> dict[str, pb.Metrics]:
    return {name: pb.Metrics(values=values) for name, values in references.items()}

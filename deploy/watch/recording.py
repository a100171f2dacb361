"""What several panels or alerts ask for and is dear: quantiles, and shares of many series.

All are kept by instance; windows are five minutes, long enough for rare calls and short enough
to see a change.
"""

from watch.rules import Record

# What is the service's own fault. A refusal (RESOURCE_EXHAUSTED, INVALID_ARGUMENT, ...) is an
# answer, and has a panel of its own.
FAULTS = "UNKNOWN|INTERNAL|UNAVAILABLE|DATA_LOSS|DEADLINE_EXCEEDED"
# Calls that end by themselves; a stream or a watch lasts as long as its caller likes.
UNARY = "Relax|RelaxVjp|Sample|SampleVjp"


def _quantile(q: float, metric: str, by: str, matcher: str = "") -> str:
    return f"""
histogram_quantile({q:g},
  sum by (le, {by}) (rate({metric}_bucket{matcher}[5m])))
"""


def _share(part: str, whole: str, by: str) -> str:
    return f"""
sum by ({by}) (rate({part}[5m]))
/
(sum by ({by}) (rate({whole}[5m])) > 0)
"""


SERVING = (
    Record(
        "instance:khot_request_faults:ratio_rate5m",
        _share(f'khot_requests_total{{code=~"{FAULTS}"}}', "khot_requests_total", "instance"),
    ),
    Record(
        "instance_method:khot_request_duration_seconds:p50_rate5m",
        _quantile(
            0.5, "khot_request_duration_seconds", "instance, method", f'{{method=~"{UNARY}"}}'
        ),
    ),
    Record(
        "instance_method:khot_request_duration_seconds:p99_rate5m",
        _quantile(
            0.99, "khot_request_duration_seconds", "instance, method", f'{{method=~"{UNARY}"}}'
        ),
    ),
    Record("instance:khot_queue:ratio", "khot_queue_scores / khot_queue_limit_scores"),
)
SOLVER = (
    Record(
        "instance_operator_source:khot_root_iterations:mean_rate5m",
        _share(
            "khot_root_iterations_sum", "khot_root_iterations_count", "instance, operator, source"
        ),
    ),
    Record(
        "instance_operator_source:khot_root_fallback_rows:ratio_rate5m",
        _share(
            "khot_root_fallback_rows_total",
            "khot_root_iterations_count",
            "instance, operator, source",
        ),
    ),
    Record(
        "instance_operator_source:khot_root_residual:p99_rate5m",
        _quantile(0.99, "khot_root_residual", "instance, operator, source"),
    ),
)
RESOURCES = (
    Record(
        "instance:khot_machine_memory_available:ratio",
        "khot_machine_memory_available_bytes / khot_machine_memory_bytes",
    ),
    Record("instance:khot_state_free:ratio", "khot_state_free_bytes / khot_state_size_bytes"),
)
GROUPS = {"khot-serving": SERVING, "khot-solver": SOLVER, "khot-resources": RESOURCES}
RECORDS = tuple(record for records in GROUPS.values() for record in records)

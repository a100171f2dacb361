"""How the roots of sigmoid top-k are found: iterations, residuals, and when by bisection."""

from watch.alerts import FALLBACK_RATIO
from watch.dashboard import Dashboard, Row
from watch.panel import AMBER, RED, Panel, Query
from watch.promql import OPERATOR, heat, increase, quantile, rate, worst

BY = "operator, source"
LEGEND = "{{operator}}, {{source}}"

ITERATIONS = (
    Panel(
        "Iterations of a row, mean",
        "short",
        "Mean in five minutes of a row's iterations, at the server where it is greatest. Halley's "
        "step from our guess takes two to four.",
        (
            Query(
                worst("instance_operator_source:khot_root_iterations:mean_rate5m", OPERATOR, by=BY),
                LEGEND,
            ),
        ),
    ),
    Panel(
        "Iterations of a row, 99th percentile",
        "short",
        "One row in a hundred took more.",
        (Query(quantile(0.99, "khot_root_iterations", OPERATOR, by=BY), LEGEND),),
    ),
    Panel(
        "Rows solved",
        "si:rows/s",
        "Rows a second whose root was found, in serving and in training.",
        (Query(f"{rate('khot_root_iterations_count', OPERATOR, by=BY)} > 0", LEGEND),),
        stacked=True,
    ),
    Panel(
        "Iterations in serving",
        "short",
        "How many served rows took how many iterations.",
        (Query(heat("khot_root_iterations", OPERATOR, 'source="serving"')),),
        kind="heatmap",
        width=12,
    ),
    Panel(
        "Iterations in training",
        "short",
        "How many trained rows took how many iterations.",
        (Query(heat("khot_root_iterations", OPERATOR, 'source="training"')),),
        kind="heatmap",
        width=12,
    ),
)

EXACTNESS = (
    Panel(
        "Residual of a row, 99th percentile",
        "sci",
        "How far the sum of a row is from k, over min(k, n - k): at most so, for 99 of 100 rows in "
        "five minutes, at the server where it is greatest.",
        (
            Query(
                worst("instance_operator_source:khot_root_residual:p99_rate5m", OPERATOR, by=BY)
                + " >= 0",
                LEGEND,
            ),
        ),
        log=True,
    ),
    Panel(
        "Residuals in serving",
        "sci",
        "How many served rows had which relative residual.",
        (Query(heat("khot_root_residual", OPERATOR, 'source="serving"')),),
        kind="heatmap",
    ),
    Panel(
        "Residuals in training",
        "sci",
        "How many trained rows had which relative residual.",
        (Query(heat("khot_root_residual", OPERATOR, 'source="training"')),),
        kind="heatmap",
    ),
    Panel(
        "Share of rows that needed bisection",
        "percentunit",
        "Rows whose bracket had to be halved, over all, in five minutes, at the server where that "
        "is greatest. Saturated scores and far outliers do that.",
        (
            Query(
                worst(
                    "instance_operator_source:khot_root_fallback_rows:ratio_rate5m", OPERATOR, by=BY
                ),
                LEGEND,
            ),
        ),
        width=12,
        steps=((FALLBACK_RATIO, AMBER),),
    ),
    Panel(
        "Rows that did not converge",
        "short",
        "Rows, in ten minutes, whose residual is above the solver's tolerance. There are none.",
        (
            Query(
                increase("khot_root_nonconverged_rows_total", OPERATOR, by=BY, window="10m"),
                LEGEND,
            ),
        ),
        width=12,
        steps=((1, RED),),
    ),
)

DASHBOARD = Dashboard(
    "khot-solver",
    "Solver",
    "How the roots of sigmoid top-k are found, in serving and in training.",
    (Row("Iterations", ITERATIONS), Row("Exactness", EXACTNESS)),
    operators=True,
)

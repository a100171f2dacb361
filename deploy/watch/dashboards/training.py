"""Jobs: what waits, what trains and how well, how they end, and what that costs."""

from watch.alerts import STUCK_S
from watch.dashboard import Dashboard, Row
from watch.panel import BLUE, RED, Panel, Query
from watch.promql import increase, mean, of, quantile, rate, total

JOB = "{{kind}} {{job_id}}"
# what Grafana makes of promql.WINDOW
LATELY = "in the minute before, or in the step of a long graph"

NOW = (
    Panel(
        "Jobs by state",
        "short",
        "Jobs that are stored, by state and kind; ended ones go after --job-ttl-s.",
        (Query(f"{total('khot_jobs', by='state, kind')} > 0", "{{state}}, {{kind}}"),),
        stacked=True,
    ),
    Panel(
        "Progress of running jobs",
        "percentunit",
        "Steps done over all steps, of each job that trains now. One may stop early.",
        (Query(of("khot_job_progress_ratio"), JOB),),
        kind="bargauge",
        base=BLUE,
        most=1,
    ),
    Panel(
        "Since the last progress",
        "s",
        "How long ago each running job last told of a step, or began. Above the line an alert "
        "fires.",
        (Query(f"time() - {of('khot_job_last_progress_timestamp_seconds')}", JOB),),
        steps=((STUCK_S, RED),),
    ),
    Panel(
        "Loss of running jobs",
        "none",
        "The loss that each running job told of last: cross-entropy or squared error of feature "
        "selections, the negative ELBO of VAEs, squared error of sparse regressions. The axis is "
        "logarithmic.",
        (Query(of("khot_job_loss"), JOB),),
        width=24,
        log=True,
    ),
)

PACE = (
    Panel(
        "Examples trained",
        "si:rows/s",
        "Examples that jobs have trained on a second, by kind.",
        (Query(rate("khot_job_rows_total", by="kind"), "{{kind}}"),),
        stacked=True,
    ),
    Panel(
        "Epochs trained",
        "si:epochs/s",
        "Passes over a training set a second, by kind.",
        (Query(rate("khot_job_epochs_total", by="kind"), "{{kind}}"),),
        stacked=True,
    ),
    Panel(
        "Time to write a checkpoint",
        "s",
        "Mean and 99th percentile, until it is safe on disk. Checkpoints take at most 2 % of a "
        "job's time.",
        (
            Query(mean("khot_checkpoint_seconds"), "mean"),
            Query(quantile(0.99, "khot_checkpoint_seconds"), "99 %"),
        ),
    ),
)

ENDS = (
    Panel(
        "Jobs submitted",
        "short",
        f"Jobs that were accepted {LATELY}, by kind.",
        (Query(increase("khot_jobs_submitted_total", by="kind"), "{{kind}}"),),
    ),
    Panel(
        "Jobs ended, by outcome",
        "short",
        f"Jobs that ended {LATELY}: succeeded, cancelled, or why they failed.",
        (
            Query(
                f"{increase('khot_jobs_ended_total', by='outcome')} > 0",
                "{{outcome}}",
            ),
        ),
        stacked=True,
    ),
    Panel(
        "Attempts ended, by outcome",
        "short",
        f"Attempts that ended {LATELY}. Lost ones, with their leases, are infrastructure's, cost "
        "the user nothing and are tried again from the last checkpoint.",
        (
            Query(
                increase("khot_attempts_total", by="outcome"),
                "{{outcome}}",
            ),
        ),
        stacked=True,
    ),
    Panel(
        "Time from submission to end",
        "s",
        "Median and 90th percentile, waiting included, by kind.",
        (
            Query(quantile(0.5, "khot_job_duration_seconds", by="kind"), "{{kind}}, median"),
            Query(quantile(0.9, "khot_job_duration_seconds", by="kind"), "{{kind}}, 90 %"),
        ),
        width=12,
    ),
    Panel(
        "Losses that were not finite",
        "short",
        "Jobs, in an hour, that were ended because their loss was NaN or infinite.",
        (Query(increase("khot_nan_losses_total", by="kind", window="1h"), "{{kind}}"),),
        width=12,
        steps=((1, RED),),
    ),
)

DASHBOARD = Dashboard(
    "khot-training",
    "Training",
    "Jobs: what waits, what trains and how well, and how they end.",
    (Row("Now", NOW), Row("Pace", PACE), Row("Beginnings and ends", ENDS)),
)

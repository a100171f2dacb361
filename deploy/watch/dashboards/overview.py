"""Is it well? If not, which page says why."""

from watch.alerts import DISK_RATIO, FAULT_RATIO, MEMORY_RATIO, OUR_OUTCOMES, P99_S, QUEUE_RATIO
from watch.dashboard import Dashboard, Row
from watch.panel import AMBER, BLUE, GREEN, RED, Panel, Query
from watch.promql import increase, of, rate, total, worst

P50 = "instance_method:khot_request_duration_seconds:p50_rate5m"
P99 = "instance_method:khot_request_duration_seconds:p99_rate5m"

WELL = (
    Panel(
        "Reachable",
        "short",
        "Whether Prometheus could scrape every chosen server just now.",
        (Query('min(up{job="khot", instance=~"$instance"})'),),
        kind="stat",
        width=3,
        height=4,
        words={"0": ("DOWN", RED), "1": ("UP", GREEN)},
    ),
    Panel(
        "Alerts firing",
        "short",
        "How many alerts of khot are firing now, on any server. The runbook has a line for each.",
        (Query('count(ALERTS{alertstate="firing", alertname=~"Khot.+"}) or vector(0)'),),
        kind="stat",
        width=3,
        height=4,
        steps=((1, RED),),
    ),
    Panel(
        "Engines",
        "short",
        "Engine processes that are there. Without one, Relax and Sample get UNAVAILABLE.",
        (Query(total("khot_engine_up")),),
        kind="stat",
        width=3,
        height=4,
        base=RED,
        steps=((1, GREEN),),
        more="khot-serving",
    ),
    Panel(
        "Calls that failed by our fault",
        "percentunit",
        "Share of calls in five minutes that ended with UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL, "
        "UNKNOWN or DATA_LOSS, of the worst server. Refusals are answers and do not count.",
        (Query(f"max({of('instance:khot_request_faults:ratio_rate5m')}) or vector(0)"),),
        kind="stat",
        width=3,
        height=4,
        steps=((FAULT_RATIO / 2, AMBER), (FAULT_RATIO, RED)),
        more="khot-serving",
    ),
    Panel(
        "Slowest call of a hundred",
        "s",
        "99th percentile, in five minutes, of the duration of Relax, Sample and their gradients; "
        "of the method and server where it is longest.",
        (Query(f"max({of(P99)} >= 0)"),),
        kind="stat",
        width=3,
        height=4,
        steps=((P99_S / 2, AMBER), (P99_S, RED)),
        more="khot-serving",
    ),
    Panel(
        "Fullest queue",
        "percentunit",
        "Scores that wait or are computed, over the most that may (--max-queue-elements); of the "
        "server where that is largest. At 100 % calls are refused.",
        (Query(f"max({of('instance:khot_queue:ratio')})"),),
        kind="stat",
        width=3,
        height=4,
        steps=((QUEUE_RATIO / 2, AMBER), (QUEUE_RATIO, RED)),
        more="khot-serving",
    ),
    Panel(
        "Jobs running",
        "short",
        "Jobs that are training now.",
        (Query(total("khot_jobs", 'state="RUNNING"')),),
        kind="stat",
        width=3,
        height=4,
        base=BLUE,
        more="khot-training",
    ),
    Panel(
        "Jobs failed by our fault, in an hour",
        "short",
        "Jobs that ended in the last hour for want of memory or disk, lost, or by a bug of ours.",
        (Query(increase("khot_jobs_ended_total", f'outcome=~"{OUR_OUTCOMES}"', window="1h")),),
        kind="stat",
        width=3,
        height=4,
        steps=((0.5, RED),),
        more="khot-training",
    ),
)

SERVING = (
    Panel(
        "Calls by code",
        "reqps",
        "Calls answered a second, by status. OK is what was computed; the others say why not.",
        (Query(f"{rate('khot_requests_total', by='code')} > 0", "{{code}}"),),
        stacked=True,
        more="khot-serving",
    ),
    Panel(
        "Duration of Relax and Sample",
        "s",
        "Median and 99th percentile in five minutes of Relax, Sample and their gradients, from a "
        "call's arrival to its end; of the server where it is longest.",
        (
            Query(f"max by (method) ({of(P50)} >= 0)", "{{method}}, median"),
            Query(f"max by (method) ({of(P99)} >= 0)", "{{method}}, 99 %"),
        ),
        more="khot-serving",
    ),
    Panel(
        "Rows served, by operator",
        "si:rows/s",
        "Rows of scores computed for callers a second: the work of the engines.",
        (Query(f"{rate('khot_rows_total', by='operator')} > 0", "{{operator}}"),),
        stacked=True,
        more="khot-serving",
    ),
)

TRAINING = (
    Panel(
        "Jobs that have not ended, by state",
        "short",
        "Jobs that wait, train, pause or end now.",
        (
            Query(
                total("khot_jobs", 'state!~"SUCCEEDED|FAILED|CANCELLED"', by="state"), "{{state}}"
            ),
        ),
        stacked=True,
        more="khot-training",
    ),
    Panel(
        "Progress of running jobs",
        "percentunit",
        "Steps done over all steps, of each job that trains now. Empty when none does.",
        (Query(of("khot_job_progress_ratio"), "{{kind}} {{job_id}}"),),
        kind="bargauge",
        base=BLUE,
        most=1,
        more="khot-training",
    ),
    Panel(
        "Iterations of a row's root",
        "short",
        "Mean in five minutes of the root-finding iterations of a row, served and trained, at the "
        "server where it is greatest. Up to four is as it should be.",
        (
            Query(
                worst(
                    "instance_operator_source:khot_root_iterations:mean_rate5m",
                    by="operator, source",
                ),
                "{{operator}}, {{source}}",
            ),
        ),
        more="khot-solver",
    ),
)

MACHINE = (
    Panel(
        "Memory, by process",
        "bytes",
        "Resident memory of the processes of the service, by what they are.",
        (Query(total("khot_process_resident_memory_bytes", by="process"), "{{process}}"),),
        stacked=True,
        more="khot-resources",
    ),
    Panel(
        "Memory left, of the machine",
        "percentunit",
        "Memory that is available over all there is, in the machine or, where that has a limit, in "
        "the container.",
        (Query(of("instance:khot_machine_memory_available:ratio"), "{{instance}}"),),
        most=1,
        base=RED,
        steps=((MEMORY_RATIO, GREEN),),
        more="khot-resources",
    ),
    Panel(
        "Disk left, of the state directory",
        "percentunit",
        "Bytes free over all, of the file system that holds jobs, data sets and artifacts.",
        (Query(of("instance:khot_state_free:ratio"), "{{instance}}"),),
        most=1,
        base=RED,
        steps=((DISK_RATIO, GREEN),),
        more="khot-resources",
    ),
)

DASHBOARD = Dashboard(
    "khot-overview",
    "Overview",
    "The first row answers whether the service is well; the others, what it does.",
    (
        Row("Is it well?", WELL),
        Row("Serving", SERVING),
        Row("Training and solving", TRAINING),
        Row("The machine", MACHINE),
    ),
)

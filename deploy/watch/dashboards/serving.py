"""From a call's arrival to its end: calls, the queue, batches, engines."""

from watch.alerts import ENGINE_LOSSES, FAULT_RATIO, P99_S, QUEUE_RATIO
from watch.dashboard import Dashboard, Row
from watch.panel import RED, Panel, Query
from watch.promql import OPERATOR, heat, increase, mean, of, quantile, rate, total

CALLS = (
    Panel(
        "Calls by method",
        "reqps",
        "Calls answered a second, whatever the answer. A stream or a watch counts when it ends.",
        (Query(f"{rate('khot_requests_total', by='method')} > 0", "{{method}}"),),
        stacked=True,
    ),
    Panel(
        "Calls by code",
        "reqps",
        "Calls answered a second, by status. RESOURCE_EXHAUSTED: the queue or a quota is full; "
        "UNAVAILABLE: draining, or an engine died; INTERNAL: a bug of ours.",
        (Query(f"{rate('khot_requests_total', by='code')} > 0", "{{code}}"),),
        stacked=True,
    ),
    Panel(
        "Calls that failed by our fault",
        "percentunit",
        "Share in five minutes of UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL, UNKNOWN and DATA_LOSS.",
        (Query(of("instance:khot_request_faults:ratio_rate5m"), "{{instance}}"),),
        steps=((FAULT_RATIO, RED),),
    ),
    Panel(
        "Duration of calls, median",
        "s",
        "Half of the calls of Relax, Sample and their gradients in five minutes took less, from "
        "arrival to end.",
        (
            Query(
                f"{of('instance_method:khot_request_duration_seconds:p50_rate5m')} >= 0",
                "{{method}} at {{instance}}",
            ),
        ),
    ),
    Panel(
        "Duration of calls, 99th percentile",
        "s",
        "One call in a hundred of Relax, Sample and their gradients in five minutes took longer.",
        (
            Query(
                f"{of('instance_method:khot_request_duration_seconds:p99_rate5m')} >= 0",
                "{{method}} at {{instance}}",
            ),
        ),
        steps=((P99_S, RED),),
    ),
    Panel(
        "Calls under way",
        "short",
        "Calls that have arrived and not ended, by method; open streams and watches are counted.",
        (Query(f"{total('khot_requests_in_flight', by='method')} > 0", "{{method}}"),),
        stacked=True,
    ),
    Panel(
        "Duration of Sample",
        "s",
        "How many calls of Sample took how long.",
        (Query(heat("khot_request_duration_seconds", 'method="Sample"')),),
        kind="heatmap",
    ),
    Panel(
        "Size of messages, mean",
        "bytes",
        "Mean size of the messages received and sent, by method.",
        (
            Query(mean("khot_request_message_bytes", by="method"), "{{method}}, received"),
            Query(mean("khot_response_message_bytes", by="method"), "{{method}}, sent"),
        ),
    ),
    Panel(
        "Traffic",
        "Bps",
        "Bytes of messages a second, received and sent.",
        (
            Query(rate("khot_request_message_bytes_sum"), "received"),
            Query(rate("khot_response_message_bytes_sum"), "sent"),
        ),
    ),
)

QUEUE = (
    Panel(
        "Queue fill",
        "percentunit",
        "Scores in the queue over the most that may be there. Above the line calls will soon be "
        "refused.",
        (Query(of("instance:khot_queue:ratio"), "{{instance}}"),),
        steps=((QUEUE_RATIO, RED),),
    ),
    Panel(
        "Items that wait",
        "short",
        "Items, or chunks of large ones, that wait for an engine.",
        (Query(of("khot_queue_items"), "{{instance}}"),),
    ),
    Panel(
        "Wait in the queue",
        "s",
        "Median and 99th percentile of the time from an item's arrival to its batch; greedy "
        "batching keeps it near one batch's time.",
        (
            Query(quantile(0.5, "khot_queue_wait_seconds"), "median"),
            Query(quantile(0.99, "khot_queue_wait_seconds"), "99 %"),
        ),
    ),
)

BATCHES = (
    Panel(
        "Batches",
        "si:batches/s",
        "Batches computed a second by all engines.",
        (Query(rate("khot_batch_rows_count"), "batches"),),
    ),
    Panel(
        "Rows of a batch, mean",
        "short",
        "Rows that shared a batch. Near one under load means that calls differ in operator, n or "
        "dtype, and cannot share.",
        (Query(mean("khot_batch_rows"), "rows"),),
    ),
    Panel(
        "Scores of a batch, mean",
        "short",
        "Scores, of all rows and samples, in a batch; --max-batch-elements is the most.",
        (Query(mean("khot_batch_scores"), "scores"),),
    ),
    Panel(
        "Engine's time for a batch",
        "s",
        "Median and 99th percentile of an engine's time for a batch.",
        (
            Query(quantile(0.5, "khot_batch_compute_seconds"), "median"),
            Query(quantile(0.99, "khot_batch_compute_seconds"), "99 %"),
        ),
    ),
    Panel(
        "Engines busy",
        "percentunit",
        "Share of their time that the engines compute. Near 100 %, more engines or cores help.",
        (
            Query(
                f"{rate('khot_batch_compute_seconds_sum')} / ({total('khot_engine_up')} > 0)",
                "busy",
            ),
        ),
    ),
    Panel(
        "Engines lost",
        "short",
        "Engines that died or were ended, in 15 minutes. Each cost the calls it was computing.",
        (Query(increase("khot_engine_losses_total", by="instance", window="15m"), "{{instance}}"),),
        steps=((ENGINE_LOSSES, RED),),
    ),
)

WORK = (
    Panel(
        "Rows served, by operator",
        "si:rows/s",
        "Rows of scores computed for callers a second.",
        (Query(rate("khot_rows_total", OPERATOR, by="operator"), "{{operator}}"),),
        width=12,
        stacked=True,
    ),
    Panel(
        "Masks drawn, by design",
        "si:draws/s",
        "Hard k-hot masks drawn a second, by the design that drew them; of an estimator, by that "
        "of its law.",
        (Query(f"{rate('khot_draws_total', by='design')} > 0", "{{design}}"),),
        width=12,
        stacked=True,
    ),
)

DASHBOARD = Dashboard(
    "khot-serving",
    "Serving",
    "From a call's arrival to its end: calls, the queue, batches, engines.",
    (Row("Calls", CALLS), Row("The queue", QUEUE), Row("Batches", BATCHES), Row("Work", WORK)),
    operators=True,
)

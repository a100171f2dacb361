"""The alerts, and the runbook.

A threshold that a panel shows too is a constant here.
"""

from watch.rules import Alert

FAULT_RATIO = 0.01
ENGINE_LOSSES = 2
P99_S = 0.5
QUEUE_RATIO = 0.8
FALLBACK_RATIO = 0.05
STUCK_S = 900
MEMORY_RATIO = 0.1
DISK_RATIO = 0.1
CERTIFICATE_S = 14 * 86400

# How a job ends when its user is not to blame, or not alone, as for want of memory.
OUR_OUTCOMES = "out_of_memory|worker_lost|storage|internal"

ALERTS = (
    Alert(
        name="KhotDown",
        expr='up{job="khot"} == 0 or absent(up{job="khot"})',
        for_="1m",
        severity="critical",
        summary="Prometheus cannot scrape khot{{ with $labels.instance }} at {{ . }}{{ end }}.",
        symptom="Calls get UNAVAILABLE, or the metrics port alone is shut.",
        action="Ask health over gRPC. If that fails too, read the last lines of `khot-server`: a "
        "taken address, a bad tokens file or a full disk end it with the reason. If it answers, "
        "mend `--metrics-address` or the target in `prometheus.yml`.",
        dashboard="khot-overview",
        panel="Reachable",
    ),
    Alert(
        name="KhotNoEngine",
        expr="khot_engine_up == 0",
        for_="30s",
        severity="critical",
        summary="khot at {{ $labels.instance }} has no engine.",
        symptom="Relax and Sample get UNAVAILABLE (`ENGINE_UNAVAILABLE`); jobs are still accepted.",
        action="Look for `engine` in the log: a device that torch no longer has, or no memory to "
        "load torch. The supervisor goes on trying, every 10 s at most.",
        dashboard="khot-overview",
        panel="Engines",
    ),
    Alert(
        name="KhotEngineLosses",
        expr=f"increase(khot_engine_losses_total[15m]) > {ENGINE_LOSSES}",
        for_="0m",
        severity="warning",
        summary="khot at {{ $labels.instance }} lost {{ $value | humanize }} engines in 15 min.",
        symptom="Now and then calls get UNAVAILABLE (`ENGINE_DIED`).",
        action="The log says how each ended: killed by the system (memory), silent for "
        "`--engine-silence-s`, or too long at one batch (`--max-batch-s`). If one kind of call "
        "does it every time, refuse its tenant and report it.",
        dashboard="khot-serving",
        panel="Engines lost",
    ),
    Alert(
        name="KhotErrorRatio",
        expr=f"instance:khot_request_faults:ratio_rate5m > {FAULT_RATIO}",
        for_="5m",
        severity="critical",
        summary="{{ $value | humanizePercentage }} of the calls to khot at {{ $labels.instance }} "
        "fail by its own fault.",
        symptom="Calls end with UNAVAILABLE, DEADLINE_EXCEEDED or INTERNAL.",
        action="See in *Calls by code* which it is. UNAVAILABLE: engines die, or it drains. "
        "DEADLINE_EXCEEDED: the queue is long, see KhotLatencyP99. INTERNAL: a bug of ours, its "
        "trace is in the log.",
        dashboard="khot-serving",
        panel="Calls that failed by our fault",
    ),
    Alert(
        name="KhotLatencyP99",
        expr=f"instance_method:khot_request_duration_seconds:p99_rate5m > {P99_S}",
        for_="10m",
        severity="warning",
        summary="One in a hundred {{ $labels.method }} calls to khot at {{ $labels.instance }} "
        "takes longer than {{ $value | humanizeDuration }}.",
        symptom="Callers wait.",
        action="Compare queue wait with compute time. Waiting: more engines "
        "(`--engines-per-device`), or bulk callers should set priority bulk. Computing: see which "
        "operator and how many scores a batch has; Brewer and Sampford cost O(n k).",
        dashboard="khot-serving",
        panel="Duration of calls, 99th percentile",
    ),
    Alert(
        name="KhotQueueNearLimit",
        expr=f"instance:khot_queue:ratio > {QUEUE_RATIO}",
        for_="1m",
        severity="warning",
        summary="The queue of khot at {{ $labels.instance }} is {{ $value | humanizePercentage }} "
        "full.",
        symptom="Soon, or already, calls are refused with RESOURCE_EXHAUSTED.",
        action="Find who sends the most: with `--log-level debug` every call has a line with its "
        "tenant. Give each tenant a share with `--max-tenant-queue-elements`, add engines, or "
        "raise `--max-queue-elements` if memory allows.",
        dashboard="khot-serving",
        panel="Queue fill",
    ),
    Alert(
        name="KhotRootsNotConverged",
        expr="sum by (instance, operator, source) "
        "(increase(khot_root_nonconverged_rows_total[10m])) > 0",
        for_="0m",
        severity="warning",
        summary="{{ $value | humanize }} rows of {{ $labels.operator }} ({{ $labels.source }}) at "
        "{{ $labels.instance }} did not reach the solver's tolerance.",
        symptom="Those rows do not sum to k as exactly as promised.",
        action="This should not happen. Ask for diagnostics on the calls of that operator to find "
        "the rows (extreme scores, a k next to 0 or n), and report them with k, tau and dtype.",
        dashboard="khot-solver",
        panel="Rows that did not converge",
    ),
    Alert(
        name="KhotFallbackShare",
        expr=f"instance_operator_source:khot_root_fallback_rows:ratio_rate5m > {FALLBACK_RATIO}",
        for_="10m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the rows of {{ $labels.operator }} "
        "({{ $labels.source }}) at {{ $labels.instance }} needed bisection.",
        symptom="Answers are right but cost up to ten times the iterations.",
        action="Scores are saturated or have outliers far beyond the rest: scale them, raise tau, "
        "or mask with -inf instead of a large negative number. In training, lower the learning "
        "rate of the logits.",
        dashboard="khot-solver",
        panel="Share of rows that needed bisection",
    ),
    Alert(
        name="KhotJobStuck",
        expr=f"time() - khot_job_last_progress_timestamp_seconds > {STUCK_S}",
        for_="0m",
        severity="warning",
        summary="Job {{ $labels.job_id }} ({{ $labels.kind }}) at {{ $labels.instance }} has made "
        "no progress for {{ $value | humanizeDuration }}.",
        symptom="A job is RUNNING and its step does not change, or it has none yet.",
        action="`khot job show` and `khot job logs`. If its attempt uses no processor time, "
        "cancel and retry the job: it goes on from its last checkpoint. If the machine is "
        "overcommitted, lower `--job-slots`.",
        dashboard="khot-training",
        panel="Since the last progress",
    ),
    Alert(
        name="KhotJobFailures",
        expr="sum by (instance, kind, outcome) "
        f'(increase(khot_jobs_ended_total{{outcome=~"{OUR_OUTCOMES}"}}[1h])) > 0',
        for_="0m",
        severity="warning",
        summary="Jobs ({{ $labels.kind }}) that failed at {{ $labels.instance }} within an hour as "
        "{{ $labels.outcome }}: {{ $value | humanize }}.",
        symptom="Jobs are FAILED and their users are not to blame, or not alone.",
        action="out_of_memory: fewer `--job-slots`, or a smaller batch. worker_lost: five attempts "
        "died, see the log. storage: see KhotDisk. internal: a bug of ours, `khot job logs` has "
        "its trace. `khot job retry` runs a job again.",
        dashboard="khot-training",
        panel="Jobs ended, by outcome",
    ),
    Alert(
        name="KhotLossNotFinite",
        expr="increase(khot_nan_losses_total[1h]) > 0",
        for_="0m",
        severity="warning",
        summary="Jobs ({{ $labels.kind }}) at {{ $labels.instance }} whose loss was not finite, "
        "within an hour: {{ $value | humanize }}.",
        symptom="Jobs are FAILED as DIVERGED.",
        action="Usually a learning rate that is too high or a data set that is not scaled; tell "
        "the user. If several tenants are hit after an update, it is ours: roll back.",
        dashboard="khot-training",
        panel="Losses that were not finite",
    ),
    Alert(
        name="KhotMemory",
        expr=f"instance:khot_machine_memory_available:ratio < {MEMORY_RATIO}",
        for_="5m",
        severity="critical",
        summary="The machine of {{ $labels.instance }} has {{ $value | humanizePercentage }} of "
        "its memory left.",
        symptom="Soon the system kills engines or attempts.",
        action="See which process grows. Attempts: fewer `--job-slots`. Engine: smaller "
        "`--max-batch-elements`. API process: smaller `--max-queue-elements`. "
        "`--spare-engine false` frees some 150 MB.",
        dashboard="khot-resources",
        panel="Memory left, of the machine",
    ),
    Alert(
        name="KhotDisk",
        expr=f"instance:khot_state_free:ratio < {DISK_RATIO}",
        for_="5m",
        severity="critical",
        summary="The disk of the state directory of {{ $labels.instance }} has "
        "{{ $value | humanizePercentage }} left.",
        symptom="Soon submitting gets UNAVAILABLE and jobs end as STORAGE.",
        action="Lower `--job-quota-bytes` or `--job-ttl-s`, so that ended jobs go sooner, delete "
        "data sets that nobody uses, or enlarge the disk.",
        dashboard="khot-resources",
        panel="Disk left, of the state directory",
    ),
    Alert(
        name="KhotCertificateExpiry",
        expr=f"khot_certificate_expiry_timestamp_seconds - time() < {CERTIFICATE_S}",
        for_="1h",
        severity="warning",
        summary="The certificate of khot at {{ $labels.instance }} expires in "
        "{{ $value | humanizeDuration }}.",
        symptom="After that no caller can connect.",
        action="Put the new certificate in the place of `--tls-cert` and `--tls-key`, and restart "
        "the service: it drains, and jobs go on from their checkpoints.",
        dashboard="khot-resources",
        panel="Certificate valid for",
    ),
)

"""What the service takes of its machine, and what is left."""

from watch.alerts import CERTIFICATE_S, DISK_RATIO, MEMORY_RATIO
from watch.dashboard import Dashboard, Row
from watch.panel import GREEN, RED, Panel, Query
from watch.promql import mean, of, quantile, rate, total

PROCESSES = (
    Panel(
        "Processor time, by process",
        "percentunit",
        "100 % is one core. Attempts are the jobs; an engine is busy while it computes.",
        (Query(rate("khot_process_cpu_seconds_total", by="process"), "{{process}}"),),
        width=12,
        stacked=True,
    ),
    Panel(
        "Memory, by process",
        "bytes",
        "Resident memory; attempts are summed. Pages that processes share count in each.",
        (Query(total("khot_process_resident_memory_bytes", by="process"), "{{process}}"),),
        width=12,
        stacked=True,
    ),
)

MACHINE = (
    Panel(
        "Memory left, of the machine",
        "percentunit",
        "Memory that is available over all there is, in the machine or, where that has a limit, in "
        "the container; below the line an alert fires.",
        (Query(of("instance:khot_machine_memory_available:ratio"), "{{instance}}"),),
        most=1,
        base=RED,
        steps=((MEMORY_RATIO, GREEN),),
    ),
    Panel(
        "Disk left, of the state directory",
        "percentunit",
        "Bytes free over all, of the file system that holds jobs, data sets and artifacts; below "
        "the line an alert fires.",
        (Query(of("instance:khot_state_free:ratio"), "{{instance}}"),),
        most=1,
        base=RED,
        steps=((DISK_RATIO, GREEN),),
    ),
    Panel(
        "Bytes free",
        "bytes",
        "Memory that is available, and disk that is free where the state directory is.",
        (
            Query(of("khot_machine_memory_available_bytes"), "memory, {{instance}}"),
            Query(of("khot_state_free_bytes"), "disk, {{instance}}"),
        ),
    ),
    Panel(
        "GPU memory",
        "bytes",
        "Memory in use on each GPU; empty where there is none.",
        (Query(of("khot_gpu_memory_used_bytes"), "{{device}} at {{instance}}"),),
    ),
    Panel(
        "GPU use",
        "percentunit",
        "Share of the time that each GPU computes; empty where there is none.",
        (Query(of("khot_gpu_utilization_ratio"), "{{device}} at {{instance}}"),),
        most=1,
    ),
    Panel(
        "Certificate valid for",
        "s",
        "Until the server's TLS certificate expires; empty without TLS. An alert fires two weeks "
        "before.",
        (Query(f"{of('khot_certificate_expiry_timestamp_seconds')} - time()", "{{instance}}"),),
        kind="stat",
        base=RED,
        steps=((CERTIFICATE_S, GREEN),),
    ),
)

STORE = (
    Panel(
        "Time of a transaction of the job store",
        "s",
        "Mean and 99th percentile of the API process's reads and writes.",
        (
            Query(mean("khot_store_seconds", by="operation"), "{{operation}}, mean"),
            Query(quantile(0.99, "khot_store_seconds", by="operation"), "{{operation}}, 99 %"),
        ),
    ),
    Panel(
        "Transactions of the job store",
        "si:transactions/s",
        "Reads and writes a second of the API process.",
        (Query(rate("khot_store_seconds_count", by="operation"), "{{operation}}"),),
    ),
    Panel(
        "Files in and out",
        "Bps",
        "Bytes a second of uploaded data sets and of downloaded artifacts.",
        (
            Query(rate("khot_upload_bytes_total"), "uploads"),
            Query(rate("khot_artifact_bytes_total"), "artifacts"),
        ),
    ),
)

WHAT = (
    Panel(
        "Versions",
        "none",
        "The version of khot, Python and gRPC at each server.",
        (Query(of("khot_build_info")),),
        kind="table",
        height=6,
    ),
    Panel(
        "Devices",
        "none",
        "What the engines of each server compute on.",
        (Query(f"{of('khot_engine_info')} == 1"),),
        kind="table",
        height=6,
    ),
    Panel(
        "Time of a scrape",
        "s",
        "How long Prometheus took to read the metrics.",
        (Query('scrape_duration_seconds{job="khot", instance=~"$instance"}', "{{instance}}"),),
        height=6,
    ),
)

DASHBOARD = Dashboard(
    "khot-resources",
    "Resources",
    "What the service takes of its machine, and what is left.",
    (
        Row("Processes", PROCESSES),
        Row("The machine", MACHINE),
        Row("Storage", STORE),
        Row("What runs", WHAT),
    ),
)

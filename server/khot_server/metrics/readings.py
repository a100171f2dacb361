"""What is read when somebody scrapes: the queue, the disk, the processes, the machine."""

import os
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from khot_server.batching.batcher import Batcher
from khot_server.metrics.definitions import DEVICES
from khot_server.metrics.gpus import Gpus
from khot_server.metrics.instruments import Instruments, Labels
from khot_server.metrics.memory import memory
from khot_server.metrics.processes import Processes


def build(instruments: Instruments) -> None:
    """Export which versions run."""
    labels = version("khot"), python_version(), version("grpcio")
    instruments.reading("build_info", lambda: {labels: 1})


def batcher(instruments: Instruments, watched: Batcher) -> None:
    """Export the queue and the engines of a batcher."""
    queue = watched.queue
    instruments.reading("queue_items", lambda: {(): queue.entries})
    instruments.reading("queue_scores", lambda: {(): queue.held})
    instruments.reading("queue_limit_scores", lambda: {(): queue.limits.queue_elements})
    instruments.reading("engine_up", lambda: {(): len(watched.devices)})

    def devices() -> dict[Labels, float]:
        used = {device.partition(":")[0] for device in watched.devices}
        return {(device,): float(device in used) for device in DEVICES}

    instruments.reading("engine_info", devices)


def disk(instruments: Instruments, directory: Path) -> None:
    """Export how much room there is where the directory is."""

    def room() -> tuple[dict[Labels, float], ...]:
        found = os.statvfs(directory)
        return tuple({(): blocks * found.f_frsize} for blocks in (found.f_bavail, found.f_blocks))

    instruments.readings(("state_free_bytes", "state_size_bytes"), room)


def gpus(instruments: Instruments, watched: Gpus) -> None:
    """Export what the GPUs do."""
    instruments.reading("gpu_memory_used_bytes", lambda: watched.memory)
    instruments.reading("gpu_utilization_ratio", lambda: watched.utilization)


def certificate(instruments: Instruments, expiry: float | None) -> None:
    """Export when the server's certificate ends, in seconds since 1970; None: there is none."""
    known: dict[Labels, float] = {} if expiry is None else {(): expiry}
    instruments.reading("certificate_expiry_timestamp_seconds", lambda: known)


def processes(instruments: Instruments, supervisor: int) -> None:
    """Export what the processes of the service use."""
    tree = Processes(supervisor)

    def used() -> tuple[dict[Labels, float], ...]:
        usage = tree.usage()
        both = usage.cpu_s, usage.memory
        return tuple({(name,): value for name, value in found.items()} for found in both)

    instruments.readings(("process_cpu_seconds_total", "process_resident_memory_bytes"), used)


def machine(instruments: Instruments) -> None:
    """Export what memory there is."""

    def left() -> tuple[dict[Labels, float], ...]:
        found = memory()
        return ({}, {}) if found is None else ({(): found.total}, {(): found.available})

    instruments.readings(("machine_memory_bytes", "machine_memory_available_bytes"), left)

"""The API process: what it serves, and how it starts, drains and stops.

`python -m khot_server.api.app --control-fd N --settings JSON`, started by the
supervisor. The control socket brings the link to each new engine and the bell of each
new runner; when it ends, the supervisor is gone, and so is this process.
"""

import argparse
import asyncio
import gc
import os
import signal
import socket
import sqlite3
import sys

import grpc
import structlog
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from khot_proto.v1 import artifact_service_pb2, dataset_service_pb2, job_service_pb2
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.artifact_service_pb2_grpc import add_ArtifactServiceServicer_to_server
from khot_proto.v1.dataset_service_pb2_grpc import add_DatasetServiceServicer_to_server
from khot_proto.v1.job_service_pb2_grpc import add_JobServiceServicer_to_server
from khot_server import logs
from khot_server.api.artifact_servicer import ArtifactService
from khot_server.api.dataset_servicer import DatasetService
from khot_server.api.event_tail import EventTail
from khot_server.api.guard import Guard
from khot_server.api.health import Health
from khot_server.api.identity import BadTokens, Tokens
from khot_server.api.job_servicer import JobService
from khot_server.api.khot_servicer import KHotService
from khot_server.api.listeners import Listeners
from khot_server.batching.batcher import Batcher
from khot_server.batching.policy import Limits
from khot_server.config import Settings
from khot_server.control import CANNOT_START, READY, RUNNER
from khot_server.datasets.store import DatasetStore
from khot_server.jobs.store import DATABASE_NAME, JobStore
from khot_server.metrics import Metrics, readings
from khot_server.metrics.certificate import expiry
from khot_server.metrics.gpus import Gpus
from khot_server.web.server import WebServer
from khot_server.web.site import Site
from khot_server.worker.link import Link

log = structlog.get_logger()

QUIET_S = 0.1  # without a call: those on their way have arrived, and were refused
LAME_DUCK_S = 2.0  # at most, for callers that do not listen
KHOT = pb.DESCRIPTOR.services_by_name["KHotService"]
JOBS = job_service_pb2.DESCRIPTOR.services_by_name["JobService"]
DATASETS = dataset_service_pb2.DESCRIPTOR.services_by_name["DatasetService"]
ARTIFACTS = artifact_service_pb2.DESCRIPTOR.services_by_name["ArtifactService"]
OURS = (KHOT, JOBS, DATASETS, ARTIFACTS)
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]


class CannotStart(Exception):
    """An address, a file or a directory is not as it must be."""


class App:
    """Everything the API process holds."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        methods = {method.name for service in OURS for method in service.methods}
        self.metrics = Metrics(methods)
        limits = Limits(
            batch_rows=settings.max_batch_rows,
            batch_elements=settings.max_batch_elements,
            queue_elements=settings.max_queue_elements,
            tenant_elements=settings.max_tenant_queue_elements,
            max_wait_s=settings.max_wait_us / 1e6,
            bulk_patience_s=settings.bulk_patience_s,
        )
        self.batcher = Batcher(limits, self.metrics, settings.max_batch_s)
        try:
            self.tokens = Tokens.load(settings.tokens) if settings.tokens else None
        except (BadTokens, OSError) as error:
            raise CannotStart(f"khot-server: {error}") from error
        try:
            self.store = JobStore(
                settings.state_dir / DATABASE_NAME,
                max_tenant_jobs=settings.max_tenant_jobs,
                observe=self.metrics.store_done,
            )
        except (OSError, sqlite3.Error) as error:
            raise CannotStart(
                "khot-server: state-dir must be a directory that can be written; "
                f"got {str(settings.state_dir)!r} ({error})"
            ) from error
        except RuntimeError as error:  # a later version of khot has been there
            raise CannotStart(f"khot-server: {error}") from error
        self.datasets = DatasetStore(
            self.store.database,
            settings.state_dir,
            max_tenant_bytes=settings.max_tenant_dataset_bytes,
        )
        self.tail = EventTail(self.store, self.metrics)
        self.guard = Guard(self.tokens, self.metrics, settings.max_caller_calls)
        told = {name: getattr(settings, name) for name in pb.Limits.DESCRIPTOR.fields_by_name}
        self.khot = KHotService(self.batcher, pb.Limits(**told))
        self.health = Health([service.full_name for service in OURS])
        self.listeners = self._listeners()
        self.gpus = Gpus(settings.devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._export_readings()
        self._engines: set[asyncio.Task[None]] = set()
        self._serving: set[Link] = set()

    def _export_readings(self) -> None:
        instruments, cert = self.metrics.instruments, self.settings.tls_cert
        readings.build(instruments)
        readings.batcher(instruments, self.batcher)
        readings.disk(instruments, self.settings.state_dir)
        readings.processes(instruments, os.getppid())
        readings.machine(instruments)
        readings.gpus(instruments, self.gpus)
        readings.certificate(instruments, None if cert is None else expiry(cert.read_text()))

    def _listeners(self) -> Listeners:
        listeners = Listeners(self.settings)
        guarded = self.guard.around(listeners)
        guarded.add_generic_rpc_handlers((self.khot.handlers(),))
        state_dir = self.settings.state_dir
        jobs = JobService(self.store, self.datasets, self.tail, state_dir)
        add_JobServiceServicer_to_server(jobs, guarded)
        datasets = DatasetService(self.datasets, max_upload_bytes=self.settings.max_dataset_bytes)
        add_DatasetServiceServicer_to_server(datasets, guarded)
        add_ArtifactServiceServicer_to_server(ArtifactService(self.store, state_dir), guarded)
        names = [service.full_name for service in (*OURS, HEALTH)]
        names.append(reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, guarded)  # type: ignore[arg-type]
        # open to everyone, for load balancers have no token
        health_pb2_grpc.add_HealthServicer_to_server(self.health, listeners)  # type: ignore[arg-type]
        return listeners

    def bind(self) -> tuple[str, str]:
        """Take the addresses; return them with the ports that were chosen.

        Raises:
            CannotStart: one is taken, or is no address of this machine.
        """
        settings = self.settings
        credentials = None
        try:
            if settings.tls_cert and settings.tls_key:
                pair = (settings.tls_key.read_bytes(), settings.tls_cert.read_bytes())
                ca = settings.tls_client_ca.read_bytes() if settings.tls_client_ca else None
                # with an authority, the handshake fails where there is no certificate of it
                credentials = grpc.ssl_server_credentials([pair], ca, ca is not None)
            port = self.listeners.bind(settings.address, credentials)
        except (RuntimeError, OSError) as error:
            raise CannotStart(
                f"khot-server: address must be a free host:port; got {settings.address!r}"
            ) from error
        site = Site(
            self.metrics.registry,
            self.store,
            self.datasets,
            settings.state_dir,
            tokens=self.tokens,
            anonymous=settings.anonymous,
            grafana_url=settings.grafana_url,
        )
        self.web = WebServer(site)
        try:
            metrics_port = self.web.start(settings.metrics_address)
        except OSError as error:
            raise CannotStart(
                "khot-server: metrics-address must be a free host:port; "
                f"got {settings.metrics_address!r}"
            ) from error
        host = settings.address.rpartition(":")[0]
        metrics_host = settings.metrics_address.rpartition(":")[0]
        return f"{host}:{port}", f"{metrics_host}:{metrics_port}"

    async def run(self, control: socket.socket) -> None:
        """Serve until SIGTERM or the end of the supervisor."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # the supervisor decides
        address, metrics_address = self.bind()
        self._tell_health()
        await self.listeners.start()
        _spare_the_collector()
        watching = [asyncio.create_task(watch) for watch in (self.tail.run(), self.gpus.watch())]
        control.send(READY)
        loop.add_reader(control, self._control, control)
        print(
            f"khot-server: listening on {address}, metrics on http://{metrics_address}", flush=True
        )
        await stop.wait()

        self.guard.draining = True
        self.khot.drain()
        self.tail.drain()
        self._tell_health()
        log.info("draining", seconds=self.settings.drain_s)
        began = loop.time()
        await self.guard.quiet(QUIET_S, min(LAME_DUCK_S, self.settings.drain_s))
        self.health.close()
        await self.listeners.stop(max(0.0, self.settings.drain_s - (loop.time() - began)))
        loop.remove_reader(control)
        ending = [*watching, *self._engines]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self.web.close()
        self.store.close()

    def _control(self, control: socket.socket) -> None:
        """Something from the supervisor: a new engine, a new runner, or its end."""
        kind, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not kind or not fds:
            os._exit(1)  # nobody is left to drain for
        peer = socket.socket(fileno=fds[0])
        if kind == RUNNER:
            self.tail.connect(peer)
            return
        task = asyncio.ensure_future(self._engine(Link(peer)))
        self._engines.add(task)
        task.add_done_callback(self._engines.discard)

    async def _engine(self, link: Link) -> None:
        async def connected() -> None:
            self._serving.add(link)
            self._tell_health()

        try:
            await self.batcher.serve(link, connected)
        except Exception:
            log.exception("engine_lost")
            link.close()  # the engine ends with it, and another comes
        finally:
            self._serving.discard(link)
            self._tell_health()

    def _tell_health(self) -> None:
        """Jobs are accepted without an engine; the whole is healthy when all of it is."""
        accepts = not self.guard.draining
        serves = {service.full_name: accepts for service in OURS}
        serves[KHOT.full_name] = accepts and bool(self._serving)
        for name, yes in {**serves, "": all(serves.values())}.items():
            self.health.set(name, yes)


def _spare_the_collector() -> None:
    """Let the garbage collector pass over what is there for good, and look less often.

    Calls leave no cycles behind; the default would walk all modules every few hundred calls.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def main() -> None:
    """Run the API process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--settings", required=True)
    options = parser.parse_args()
    logs.configure("api")
    settings = Settings.model_validate_json(options.settings)
    try:
        uvloop.run(_run(settings, socket.socket(fileno=options.control_fd)))
    except CannotStart as error:
        print(error, file=sys.stderr)
        sys.exit(CANNOT_START)


async def _run(settings: Settings, control: socket.socket) -> None:
    await App(settings).run(control)


if __name__ == "__main__":
    main()

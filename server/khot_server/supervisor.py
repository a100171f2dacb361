r"""The supervisor: starts the processes, connects them, restarts what dies, stops it all.

                       supervisor
          control socket /  |  \ lifelines
                        /   |   \
                     API  engine  runner -- attempt
                       \__link__/      |
                        \_____bell_____/

Sockets and pipes are made here and handed over, so nothing has a name that could be
left behind. Whatever dies, the other ends notice: an engine ends with its link or its
lifeline, a runner (and its attempt) with its lifeline, the API process with its
control socket. What died is started again, after a pause that grows with each death in
a row; a process that says it cannot start ends the service.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import structlog

from khot_server.config import Settings
from khot_server.control import CANNOT_START, ENGINE, READY, RUNNER

log = structlog.get_logger()

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
# A process that lived this long did not die of its start.
SETTLED_S = 20.0
RUNNER_STOP_S = 30.0


@dataclass
class Child:
    """A running process, and what ends with it."""

    process: asyncio.subprocess.Process
    held: contextlib.ExitStack


class Supervisor:
    """The processes of one machine and one device."""

    def __init__(self, settings: Settings) -> None:
        self._settings = with_ports(settings)
        self._stopping = asyncio.Event()
        self._cannot_start = False
        self._running: dict[str, Child] = {}
        # The ends that the API process gets: of its control socket ours, of the bell both.
        self._control: socket.socket | None = None
        self._control_up = asyncio.Event()
        self._bell: socket.socket | None = None

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; return the exit status of the service."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        starts = {
            "api": self._start_api,
            "engine": self._start_engine,
            "runner": self._start_runner,
        }
        kept = [asyncio.create_task(self._keep(name, start)) for name, start in starts.items()]
        stopping = asyncio.create_task(self._stopping.wait())
        # a task that ended by itself has failed, and must not be passed over
        await asyncio.wait([stopping, *kept], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        await self._stop()
        for task in kept:
            task.cancel()
        for outcome in await asyncio.gather(*kept, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        return 1 if self._cannot_start else 0

    async def _keep(self, name: str, start: Callable[[], Awaitable[Child]]) -> None:
        """Keep one process running."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_S
        while True:
            child = self._running[name] = await start()
            began = loop.time()
            code = await child.process.wait()
            child.held.close()
            if self._stopping.is_set():
                return
            if code == CANNOT_START:
                self._cannot_start = True
                return
            pause = FIRST_PAUSE_S if loop.time() - began > SETTLED_S else pause
            pid = child.process.pid
            log.warning("process_died", name=name, pid=pid, status=code, restart_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _start_api(self) -> Child:
        ours, theirs = socket.socketpair()
        arguments = {
            "--control-fd": theirs.fileno(),
            "--settings": self._settings.model_dump_json(),
        }
        held = contextlib.ExitStack()
        held.callback(self._lose_control, ours)
        child = await _spawn("khot_server.api.app", arguments, [theirs], held)
        ours.setblocking(False)
        # The others are started once it could: what it refuses would fail them too.
        if await asyncio.get_running_loop().sock_recv(ours, 1) == READY:
            self._control = ours
            self._control_up.set()
            if self._bell is not None:
                self._hand_over(RUNNER, self._bell)
        return child

    def _lose_control(self, control: socket.socket) -> None:
        self._control_up.clear()
        self._control = None
        control.close()

    async def _start_engine(self) -> Child:
        await self._control_up.wait()
        ours, theirs = socket.socketpair()
        lifeline, line = os.pipe(), contextlib.ExitStack()
        line.callback(os.close, lifeline[1])
        arguments = {
            "--link-fd": theirs.fileno(),
            "--lifeline-fd": lifeline[0],
            "--device": self._settings.device,
        }
        child = await _spawn(
            "khot_server.worker.process", arguments, [theirs, os.fdopen(lifeline[0])], line
        )
        # The API process alone holds the other end: when it dies, the engine ends.
        self._hand_over(ENGINE, ours)
        ours.close()
        return child

    async def _start_runner(self) -> Child:
        await self._control_up.wait()
        ours, theirs = socket.socketpair()
        lifeline, line = os.pipe(), contextlib.ExitStack()
        line.callback(os.close, lifeline[1])
        line.callback(ours.close)
        settings = self._settings
        arguments = {
            "--bell-fd": theirs.fileno(),
            "--lifeline-fd": lifeline[0],
            "--state-dir": settings.state_dir,
            "--device": settings.device,
            "--lease-s": settings.lease_s,
            "--heartbeat-s": settings.heartbeat_s,
        }
        child = await _spawn(
            "khot_server.jobs.runner", arguments, [theirs, os.fdopen(lifeline[0])], line
        )
        # Kept here too, for the next API process: a runner outlives the one it rings.
        self._bell = ours
        self._hand_over(RUNNER, ours)
        return child

    def _hand_over(self, kind: bytes, end: socket.socket) -> None:
        """Give the API process its end. If it is just dying, its successor gets another."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [kind], [end.fileno()])

    async def _stop(self) -> None:
        """Drain: the API process and the runner have time, the engine ends with its link."""
        settings, order = self._settings, ("api", "runner", "engine")
        patience = {"api": settings.drain_s + 5, "runner": RUNNER_STOP_S, "engine": 5.0}
        children = {name: self._running[name].process for name in order if name in self._running}
        for name in ("api", "runner"):
            if name in children:
                with contextlib.suppress(ProcessLookupError):
                    children[name].terminate()
        for name, process in children.items():
            try:
                await asyncio.wait_for(process.wait(), patience[name])
            except TimeoutError:
                log.error("process_killed", name=name, pid=process.pid, after_s=patience[name])
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def with_ports(settings: Settings) -> Settings:
    """The settings with a free port for each port 0, so that a restart keeps its address."""
    chosen = {}
    for name in ("address", "metrics_address"):
        host, _, port = getattr(settings, name).rpartition(":")
        if port == "0":
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with contextlib.suppress(OSError), socket.socket(family) as probe:
                probe.bind((host.strip("[]"), 0))
                chosen[name] = f"{host}:{probe.getsockname()[1]}"
    return settings.model_copy(update=chosen)


async def _spawn(
    module: str,
    arguments: Mapping[str, object],
    passed: Sequence[socket.socket | IO[str]],
    held: contextlib.ExitStack,
) -> Child:
    """Start `python -m module` with these ends, which are closed here: they are the child's."""
    flat = [str(part) for pair in arguments.items() for part in pair]
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *flat,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=[end.fileno() for end in passed],
        )
    finally:
        for end in passed:
            end.close()
    return Child(process, held)

r"""The supervisor: starts the processes, connects them, restarts what dies, stops it all.

                       supervisor
          control socket /  |  \ lifelines
                        /   |   \
                     API  engines  runner -- attempt
                       \__links_/      |
                        \_____bell_____/

Sockets are made here and handed over, so nothing has a name that could be left behind.
Whatever dies, the other ends notice: an engine ends with its link or its lifeline, a
runner (and its attempt) with its lifeline, the API process with its control socket. What
died is started again, after a pause that grows with each death in a row; a process that
says it cannot start ends the service.

An engine can also hang: be stopped, or have all its threads wait for each other. So each
sends a pulse over its lifeline (`worker/pulse.py`), and one that was silent for
`--engine-silence-s` is killed, and restarted as any other that died. A machine under load
must not make healthy engines look hung: with seven busy processes to a core a pulse came
1.8 s late, and loading torch, which holds the interpreter, kept it back for 2.6 s. So what
counts is silence while no thread of the engine runs or waits for a core or a disk. Silent
but busy, or not ready yet, it has LONG_SILENCE_S (and always, where the system does not
tell). And the time is counted in waits of the supervisor, PULSE_S each: while it does not
run itself, because the machine sleeps or Ctrl-Z stopped the whole group, nothing is counted.

Loading torch takes seconds, longer than callers try again. So there is a spare, an engine
that has loaded it and waits for its device: it takes the place of the next that dies.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import structlog

from khot_server.config import Settings
from khot_server.control import CANNOT_START, ENGINE, PULSE_S, READY, RUNNER

log = structlog.get_logger()

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
# A process that lived this long did not die of its start.
SETTLED_S = 20.0
SPARE = "engine-spare"
LONG_SILENCE_S = 60.0
# Beyond the drain, for the API process; for a runner; for an engine without a link.
API_STOP_S, RUNNER_STOP_S, ENGINE_STOP_S = 5.0, 30.0, 5.0


@dataclass
class Child:
    """A running process, and what ends with it."""

    name: str
    process: asyncio.subprocess.Process
    held: contextlib.ExitStack


@dataclass
class Tied(Child):
    """One with a socket to the API process, and a lifeline to us."""

    theirs: socket.socket
    lifeline: socket.socket


class Supervisor:
    """The processes of one machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._held = with_ports(settings)
        self._stopping, self._at_once = asyncio.Event(), asyncio.Event()
        self._cannot_start = False
        # The same for each runner we start: the next knows by it what the last one held.
        self._runner_name = f"{socket.gethostname()}:{uuid4().hex[:8]}"
        self._running: dict[str, Child] = {}
        self._engines = {
            f"engine-{device}-{number}": device
            for device in settings.devices
            for number in range(settings.engines_per_device)
        }
        # The ends that the API process gets: of its control socket ours, of the bell both.
        self._control: socket.socket | None = None
        self._control_up = asyncio.Event()
        self._bell: socket.socket | None = None
        self._spare_wanted = asyncio.Event()

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT, and stop at once at the second; return the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        starts = {"api": self._start_api, "runner": self._start_runner}
        starts |= {name: partial(self._start_engine, name) for name in self._engines}
        kept = [asyncio.create_task(self._keep(name, start)) for name, start in starts.items()]
        if self._settings.spare_engine:
            kept.append(asyncio.create_task(self._keep_spare()))
        stopping = asyncio.create_task(self._stopping.wait())
        # a task that ended by itself has failed, and must not be passed over
        await asyncio.wait([stopping, *kept], return_when=asyncio.FIRST_COMPLETED)
        self._stopping.set()
        drained = asyncio.create_task(self._drain())
        at_once = asyncio.create_task(self._at_once.wait())
        await asyncio.wait([drained, at_once], return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, at_once, *kept):
            task.cancel()
        outcomes = await asyncio.gather(drained, *kept, return_exceptions=True)
        await self._kill_all()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return 1 if self._cannot_start or self._at_once.is_set() else 0

    def _signalled(self) -> None:
        if self._stopping.is_set():
            log.warning("stopping_at_once")
            self._at_once.set()
        self._stopping.set()

    async def _keep(self, name: str, start: Callable[[], Awaitable[Child]]) -> None:
        """Keep one process running."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_S
        while True:
            child = await start()
            began = loop.time()
            code = await child.process.wait()
            child.held.close()
            # What was accepted needs an engine to the end of the drain; then it loses its
            # link, and ends by itself.
            if self._stopping.is_set() and (name not in self._engines or code == 0):
                return
            if code == CANNOT_START:
                self._cannot_start = True
                return
            if code == 0 or loop.time() - began > SETTLED_S:
                pause = FIRST_PAUSE_S
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
        child = await self._spawn("api", "khot_server.api.app", arguments, [theirs])
        child.held.callback(self._lose_control, ours)
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

    async def _start_engine(self, name: str) -> Child:
        await self._control_up.wait()
        engine = self._spare() or await self._load_engine(name)
        engine.name, self._running[name] = name, engine
        # The API process alone holds the other end: when it dies, the engine ends.
        self._hand_over(ENGINE, engine.theirs)
        engine.theirs.close()
        with contextlib.suppress(OSError):  # it ended
            engine.lifeline.send(self._engines[name].encode())
        return engine

    async def _load_engine(self, name: str) -> Tied:
        """Start an engine; it waits for its device."""
        engine = await self._start_tied(name, "khot_server.worker.process", "--link-fd", {})
        watch = asyncio.create_task(self._watch(engine))
        engine.held.callback(watch.cancel)
        return engine

    async def _keep_spare(self) -> None:
        """Have a spare engine, made when the others are up and need the cores no more."""
        while True:
            await self._spare_wanted.wait()
            self._spare_wanted.clear()
            if SPARE not in self._running:
                await self._load_engine(SPARE)

    def _spare(self) -> Tied | None:
        """The spare, which is one no longer, if it lives."""
        spare = self._running.pop(SPARE, None)
        if isinstance(spare, Tied) and spare.process.returncode is None:
            return spare
        if spare is not None:
            spare.held.close()
        return None

    async def _watch(self, engine: Tied) -> None:
        """Kill an engine that has no pulse any more."""
        silent_s, busy_s, patience_s = 0.0, 0.0, LONG_SILENCE_S
        while silent_s < patience_s and busy_s < LONG_SILENCE_S:
            await asyncio.sleep(PULSE_S)
            try:
                heard = engine.lifeline.recv(4096)
            except BlockingIOError:
                if busy(engine.process.pid):
                    busy_s += PULSE_S
                else:
                    silent_s += PULSE_S
                continue
            if not heard:
                return  # it ended, and is waited for elsewhere
            silent_s = busy_s = 0.0
            if READY in heard:
                patience_s = self._settings.engine_silence_s
                self._spare_wanted.set()
        pid = engine.process.pid
        log.error("engine_hung", name=engine.name, pid=pid, silent_s=silent_s, busy_s=busy_s)
        _kill(engine.process)

    async def _start_runner(self) -> Child:
        settings = self._settings
        arguments: dict[str, object] = {
            "--state-dir": settings.state_dir,
            "--device": settings.devices[0],
            "--name": self._runner_name,
            "--slots": settings.job_slots,
            "--threads": settings.job_threads,
            "--checkpoint-s": settings.checkpoint_s,
            "--ttl-s": settings.job_ttl_s,
            "--quota-bytes": settings.job_quota_bytes,
            "--backoff-s": settings.job_backoff_s,
            "--lease-s": settings.lease_s,
            "--heartbeat-s": settings.heartbeat_s,
            "--warm": int(settings.warm_attempts),
        }
        if settings.data_dir is not None:
            arguments["--data-dir"] = settings.data_dir
        runner = await self._start_tied("runner", "khot_server.jobs.runner", "--bell-fd", arguments)
        # Kept here too, for the next API process: a runner outlives the one it rings.
        self._bell = runner.theirs
        self._hand_over(RUNNER, self._bell)
        return runner

    def _hand_over(self, kind: bytes, end: socket.socket) -> None:
        """Give the API process its end. If it is just dying, its successor gets another."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [kind], [end.fileno()])

    async def _start_tied(
        self, name: str, module: str, flag: str, arguments: Mapping[str, object]
    ) -> Tied:
        """Start a process that has a lifeline, and at `flag` a socket to the API process."""
        await self._control_up.wait()
        (ours, theirs), (line, lifeline) = socket.socketpair(), socket.socketpair()
        ends = {flag: theirs.fileno(), "--lifeline-fd": lifeline.fileno()}
        child = await self._spawn(name, module, {**ends, **arguments}, [theirs, lifeline])
        line.setblocking(False)
        for end in (ours, line):
            child.held.callback(end.close)
        tied = self._running[name] = Tied(name, child.process, child.held, ours, line)
        return tied

    async def _spawn(
        self,
        name: str,
        module: str,
        arguments: Mapping[str, object],
        passed: Sequence[socket.socket],
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
                env=self._environment(name),
            )
        finally:
            for end in passed:
                end.close()
        child = self._running[name] = Child(name, process, contextlib.ExitStack())
        return child

    def _environment(self, name: str) -> dict[str, str]:
        """Ours; for an engine, with its part of the cores if several share those of the CPU.

        One that has them to itself is left to torch, which knows best how many threads they
        are good for; and so are all if the user has said how many.
        """
        if name == "api":
            # It starts parsers, and what gRPC does about a fork can crash one before it begins.
            return {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"}
        sharing = sum(device.partition(":")[0] == "cpu" for device in self._engines.values())
        if sharing < 2 or name not in (*self._engines, SPARE):
            return dict(os.environ)
        return {"OMP_NUM_THREADS": str(max(1, _cores() // sharing)), **os.environ}

    async def _drain(self) -> None:
        """The API process and the runner have time; the engines end with their links."""
        for name in ("api", "runner"):
            if name in self._running:
                with contextlib.suppress(ProcessLookupError):
                    self._running[name].process.terminate()
        await asyncio.gather(
            self._ended("api", self._settings.drain_s + API_STOP_S),
            self._ended("runner", RUNNER_STOP_S),
        )
        await asyncio.gather(*(self._ended(name, ENGINE_STOP_S) for name in self._engines))

    async def _ended(self, name: str, patience_s: float) -> None:
        if name not in self._running:
            return
        process = self._running[name].process
        try:
            await asyncio.wait_for(process.wait(), patience_s)
        except TimeoutError:
            log.error("process_killed", name=name, pid=process.pid, after_s=patience_s)
            _kill(process)
            await process.wait()

    async def _kill_all(self) -> None:
        """Kill whatever still runs: after a drain, the spare."""
        processes = [child.process for child in self._running.values()]
        for process in processes:
            _kill(process)
        await asyncio.gather(*(process.wait() for process in processes))


def with_ports(settings: Settings) -> tuple[Settings, list[socket.socket]]:
    """The settings with a free port for each port 0, so that a restart keeps its address.

    The sockets are to be held as long as that matters: they are bound to these ports, so the
    system gives none of them to a connection of somebody else's. They do not listen, and allow
    others to be bound beside them, so they are in nobody's way who listens there.
    """
    chosen, held = {}, []
    for name in ("address", "metrics_address"):
        host, _, port = getattr(settings, name).rpartition(":")
        if port == "0":
            holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.append(holder)
            with contextlib.suppress(OSError):  # which the API process will say
                holder.bind((host.strip("[]"), 0))
                chosen[name] = f"{host}:{holder.getsockname()[1]}"
    return settings.model_copy(update=chosen), held


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def busy(pid: int) -> bool:
    """Whether a thread of the process runs, or would if it got a core or its data."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return True
    for task in tasks:
        with contextlib.suppress(OSError):  # the thread has ended
            if (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD":
                return True
    return False


def _cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

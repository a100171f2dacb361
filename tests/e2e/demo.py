"""`make demo`: the service from start to stop, as its users see it.

A server on free loopback ports with a state directory of its own; a relaxation, a
sample, and a job that learns which 10 of 64 pixels tell handwritten digits apart. The
server's output is shown only if something fails. Nothing is left behind, neither a
process nor a file, also after Ctrl-C.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.console import Console

from khot_client import Client, FeatureSelection, KhotError
from khot_client.cli.render import describe, show_progress

LISTENING = re.compile(r"khot-server: listening on (\S+), metrics on (\S+)")
START_S, STOP_S = 60, 30


class ServerFailed(Exception):
    """The server did not start or did not stop as it should; holds its output."""


class Server:
    """`python -m khot_server` as a child process, with all its files in one directory.

    Attributes:
        process: the supervisor.
        address: of gRPC, host:port.
        metrics: URL of the metrics.
    """

    def __init__(self, directory: str, *flags: str) -> None:
        where = ("--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0")
        where += ("--state-dir", f"{directory}/state")
        command = [sys.executable, "-m", "khot_server", *where, *flags]
        # The settings of whoever runs this are for another server. torch leaves a cache in
        # the temporary directory. A session of its own, so that Ctrl-C reaches the client
        # first, which then stops the server.
        environment = {n: v for n, v in os.environ.items() if not n.startswith("KHOT_")}
        environment["TMPDIR"] = directory
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.address = self.metrics = ""
        self._output: list[str] = []
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._output.append(line)
            if found := LISTENING.search(line):
                self.address, self.metrics = found.groups()
                self._listens.set()
        self._listens.set()  # nothing more will come

    def wait_until_serving(self) -> None:
        """Return once health says SERVING."""
        if not self._listens.wait(START_S) or not self.address:
            raise ServerFailed(f"the server did not start:\n{''.join(self._output)}")
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(self.address, options) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch
            try:
                for answer in watch(health_pb2.HealthCheckRequest(), timeout=START_S):
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
            except grpc.RpcError as error:
                code = error.code().name
                raise ServerFailed(f"no health: {code}\n{''.join(self._output)}") from None

    def stop(self) -> None:
        """SIGTERM, and the end of all its processes."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
            self._reader.join(STOP_S)  # ends when the last process that could write has ended
        finally:
            if self.process.poll() is None or self._reader.is_alive():
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                self._reader.join()
            assert self.process.stdout is not None
            self.process.stdout.close()
        if self.process.returncode:
            said = "".join(self._output)
            raise ServerFailed(f"the server ended with {self.process.returncode}:\n{said}")


@contextmanager
def running_server(*flags: str) -> Iterator[Server]:
    """A server with a temporary directory of its own, for as long as the `with` lasts."""
    with tempfile.TemporaryDirectory(prefix="khot-") as directory:
        server = Server(directory, *flags)
        try:
            server.wait_until_serving()
            yield server
        finally:
            server.stop()


def show(console: Console, address: str) -> None:
    """The calls of the demo."""
    with Client(address) as client:
        scores = [2.0, 1.0, 0.0, -1.0]
        soft = client.relax(scores, 2, tau=0.5)
        console.print(f"relax   2 of {scores}: {soft.p.round(3).tolist()}, sum {soft.p.sum():.6f}")
        drawn = client.sample(scores, 2, tau=0.5, seed=1)
        again = client.sample(scores, 2, tau=0.5, seed=drawn.seed)
        same = "the same again" if (drawn.z == again.z).all() else "another"
        console.print(f"sample  {drawn.z.astype(int).tolist()}, and with its seed {same}\n")

        spec = FeatureSelection(dataset="digits", k=10)
        job = client.submit(spec)
        console.print(f"submit  {spec}\njob     {job.id}")
        show_progress(console, job.watch())
        console.print(describe(job.wait()))


def main() -> int:
    """Run the demo; return its exit code."""
    signal.signal(signal.SIGTERM, _end)
    console = Console(highlight=False)
    console.print("starting a server ...")
    try:
        with running_server() as server:
            console.print(f"server  serves on {server.address}, metrics on {server.metrics}\n")
            show(console, server.address)
            console.print("\nstopping the server ...")
        console.print("server  stopped")
    except KeyboardInterrupt:
        console.print("\ndemo: interrupted; the server is stopped")
        return 130
    except (KhotError, ServerFailed) as error:
        console.print(f"demo: {error}", markup=False)
        return 1
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)  # through every `finally`, unlike the signal itself


if __name__ == "__main__":
    sys.exit(main())

"""The two generators, each a process of its own: h2load where it is, a Python client elsewhere.

On two cores, generator and server share what there is, so a dear generator measures itself:
against the echo, 64 callers with 1x784 floats each, h2load reaches 2600 requests/s and a grpc.aio
client 1600. So h2load makes the closed loops. It does not see whether an RPC failed; a trickle of
real calls and the server's own counters do. Where every call's status matters (open loop), the
Python client is the generator.
"""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from load_runs import Call, Phase, Run, framed, from_h2load, stream_request

HERE = Path(__file__).parent
GRPC = ("-H", "content-type: application/grpc", "-H", "te: trailers")
RUN_S = 300.0  # no run may take longer


def has_h2load() -> bool:
    return shutil.which("h2load") is not None


def children_cpu_s() -> float:
    """The CPU time of all generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def closed(address: str, path: str, request: bytes, callers: int, requests: int) -> Run:
    """A closed loop of callers with a connection each."""
    if has_h2load():
        return _h2load(address, path, framed(request), callers, 1, requests)
    spec = {"loop": "closed", "callers": callers, "channels": callers, "requests": requests}
    return _run(_client(spec, address, path, request, None))


def one_connection(
    loop: str, address: str, path: str, request: bytes, reply: str, callers: int, requests: int
) -> Run:
    """A closed loop over one connection, `loop` "closed" or "stream".

    To h2load a stream is one request whose body is all that is asked. It sends as fast as it is
    read, so it is the server that must have been started with room for `callers` on a stream.
    """
    if not has_h2load():
        return one_connection_checked(loop, address, path, request, reply, callers, requests)
    if loop == "closed":
        return _h2load(address, path, framed(request), 1, callers, requests)
    body = b"".join(framed(stream_request(i, request)) for i in range(1, requests + 1))
    run = _h2load(address, path, body, 1, 1, 1)
    return Run((), run.seconds, requests=requests)


def one_connection_checked(
    loop: str, address: str, path: str, request: bytes, reply: str, callers: int, requests: int
) -> Run:
    """The same by the Python client, which reads every answer."""
    spec = {"loop": loop, "callers": callers, "channels": 1, "requests": requests}
    return _run(_client(spec, address, path, request, reply))


def open_loop(
    address: str, path: str, request: bytes, reply: str, phases: Sequence[Phase], channels: int
) -> tuple[float, list[Call], list[dict[str, float]]]:
    """The start by `time.perf_counter`, which is the machine's, the calls, and their stages.

    What failed otherwise than by being refused is printed: it should not be there.
    """
    steps = [(phase.name, phase.rate, phase.seconds) for phase in phases]
    spec = {"loop": "open", "phases": steps, "channels": channels}
    seen = _client(spec, address, path, request, reply)
    for what, count in seen["strange"].items():
        print(f"load_grpc: {count} calls ended with {what}")
    return seen["start"], [Call(**call) for call in seen["calls"]], seen["stages"]


def _h2load(
    address: str, path: str, content: bytes, connections: int, streams: int, requests: int
) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(content)
        count = ("-c", str(connections), "-m", str(streams), "-n", str(requests))
        command = ("h2load", *GRPC, *count, "-d", str(body), f"--log-file={log}")
        output = _output([*command, f"http://{address}{path}"])
        return from_h2load(output, log.read_text())


def _client(
    spec: dict[str, Any], address: str, path: str, request: bytes, reply: str | None
) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile() as body:
        body.write(request)
        body.flush()
        full = {**spec, "address": address, "path": path, "body": body.name, "reply": reply}
        seen: dict[str, Any] = json.loads(
            _output([sys.executable, str(HERE / "load_client.py"), json.dumps(full)])
        )
    return seen


def _run(seen: dict[str, Any]) -> Run:
    return Run(seen["latencies_s"], seen["seconds"], seen.get("stages", ()))


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S)
    if done.returncode:
        who, why = Path(command[0]).name, done.stderr[-2000:]
        raise RuntimeError(f"{who}: must end with 0; got {done.returncode}: {why}")
    return done.stdout

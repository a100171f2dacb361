"""`make demo`: the service from start to stop, as its users see it.

A server on free loopback ports with a state directory of its own; a relaxation, a
sample, and a job that learns which 10 of 64 pixels tell handwritten digits apart. The
server's output is shown only if something fails. Nothing is left behind, neither a
process nor a file, also after Ctrl-C.
"""

import signal
import sys
from pathlib import Path
from types import FrameType

from rich.console import Console

from khot_client import Client, FeatureSelection, KhotError
from khot_client.cli.progress import show_progress
from khot_client.cli.render import describe

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from processes import ServerFailed, running_server


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
            console.print(f"server  serves on {server.address}, metrics on {server.metrics_url}\n")
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

"""`khot status`: whether a server serves, and what it has."""

import time
from collections import Counter

import grpc
import typer

from khot_client import __version__
from khot_client.channel import LONGEST_S, open_channel
from khot_client.cli.faults import FAILED
from khot_client.cli.options import Session, spread
from khot_client.cli.output import print_facts, print_json, words
from khot_client.errors import PermissionDenied, from_rpc_error
from khot_client.settings import resolve

# gRPC's own health service, by its bytes: the client does not depend on the package for it.
_CHECK = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"


@spread
def status(session: Session) -> None:
    """Show whether the server serves, what it is and accepts, and your jobs by state.

    The exit code is 1 if it is there and does not serve, and 5 if it is not there.

    Example: khot status
    """
    with session.connect() as client:
        start = time.perf_counter()
        serves = _serves(session)
        facts: dict[str, object] = {
            "server": client.address,
            "health": "serving" if serves else "not serving",
            "answered in": f"{1000 * (time.perf_counter() - start):.0f} ms",
            "client": f"khot {__version__}",
        }
        if serves:
            server = client.server()
            facts["version"] = f"khot {server.version}"
            facts["devices"] = ", ".join(server.devices)
            facts["operators"] = dict(Counter(row.kind for row in client.list_operators()))
            facts["limits"] = dict(server.limits)
            try:
                states = Counter(job.state.lower() for job in client.jobs())
                facts["data sets"] = sum(1 for _ in client.datasets())
                facts["jobs"] = dict(states)
            except PermissionDenied:  # a token for sampling alone
                pass
    if session.as_json:
        print_json({name.replace(" ", "_"): value for name, value in facts.items()})
    else:
        print_facts({name: words(v) if isinstance(v, dict) else v for name, v in facts.items()})
    if not serves:
        raise typer.Exit(FAILED)


def _serves(session: Session) -> bool:
    """What the server says of its own health, for which no token is needed."""
    tls = session.ca or session.tls or None
    settings = resolve(session.address, token=session.token, tls=tls, profile=session.profile)
    channel = open_channel(settings, grpc)
    limit = session.timeout if session.timeout < LONGEST_S else None
    try:
        answer: bytes = channel.unary_unary(_CHECK)(b"", timeout=limit)
    except grpc.RpcError as error:
        raise from_rpc_error(error, settings.address) from None
    finally:
        channel.close()
    return answer == _SERVING

"""`khot-server`, and `python -m khot_server`: run the service, or make a token for it."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from khot_server import logs
from khot_server.api.identity import SCOPES, new_token
from khot_server.config import BadSettings, Settings, load
from khot_server.supervisor import Supervisor


def main() -> None:
    """Entry point of the `khot-server` command."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["new-token"]:
        _new_token(arguments[1:])
        return
    try:
        settings = load(arguments)
    except BadSettings as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    os.environ |= logs.environment(settings.log_level, settings.log_format)  # our processes' too
    logs.configure("supervisor")
    for name, value in settings.model_dump(mode="json").items():
        print(f"khot-server: {name.replace('_', '-')} = {value}", flush=True)
    sys.exit(asyncio.run(_run(settings)))


async def _run(settings: Settings) -> int:
    return await Supervisor(settings).run()


def _new_token(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="khot-server new-token",
        description="Make a bearer token. It is shown once, on stderr; its entry for the "
        "tokens file, which holds only a hash, goes to stdout.",
    )
    parser.add_argument("--tenant", required=True, help="whose jobs and limits it stands for")
    parser.add_argument("--scope", action="append", choices=SCOPES, help="may be repeated")
    options = parser.parse_args(arguments)
    token, entry = new_token(options.tenant, options.scope or ("sample", "jobs"))
    print(token, file=sys.stderr)
    print(entry, end="")


if __name__ == "__main__":
    main()

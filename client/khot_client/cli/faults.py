"""What becomes of an error: one line on stderr, and an exit code of one table."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from khot_client.errors import (
    BadSettings,
    DeadlineExceeded,
    JobFailed,
    KhotError,
    NotFound,
    Overloaded,
    PermissionDenied,
    TlsFailed,
    Unauthenticated,
    Unavailable,
)

OK, FAILED, USAGE, JOB_FAILED, NOT_FOUND, NO_SERVER, NOT_TRUSTED, STOPPED = 0, 1, 2, 3, 4, 5, 6, 130

MEANINGS = {
    OK: "it went well",
    FAILED: "it was refused, or failed; of `khot status`: the server is there and does not serve",
    USAGE: "the command, a setting or a file cannot be meant so",
    JOB_FAILED: "the job failed or was cancelled",
    NOT_FOUND: "there is no such job, data set or file for this token",
    NO_SERVER: "no server answers in time, or it has too much to do: later it may",
    NOT_TRUSTED: "the token or a certificate is not accepted",
    STOPPED: "Ctrl-C",
}
STOPPED_BY_CTRL_C = "stopped by Ctrl-C. Run it again; `khot jobs` shows what it had submitted"
# All other errors are FAILED.
EXIT_CODES: dict[type[KhotError], int] = {
    BadSettings: USAGE,
    JobFailed: JOB_FAILED,
    NotFound: NOT_FOUND,
    Unavailable: NO_SERVER,
    Overloaded: NO_SERVER,
    DeadlineExceeded: NO_SERVER,
    TlsFailed: NOT_TRUSTED,
    Unauthenticated: NOT_TRUSTED,
    PermissionDenied: NOT_TRUSTED,
}
# What to do, where the advice of the exception is for programs.
ADVICE: dict[type[KhotError], str] = {
    Unavailable: "Check --address and --tls; `khot up` starts a server on this machine.",
    DeadlineExceeded: "Allow more time with --timeout, or ask for less at once.",
    Unauthenticated: "Set KHOT_TOKEN or a profile; `khot token new` makes a token.",
    JobFailed: "`khot job logs` says more; `khot job retry` goes on from its last checkpoint.",
    TlsFailed: "Check --tls and --ca, and the dates and names of the certificates; "
    "whoever runs the server can renew its own.",
}
_ONLY_ITEM = re.compile(r"^items\[0\](\.|: )")  # a command sends one: the rest says what is meant
_FULL = (errno.ENOSPC, errno.EDQUOT)
DEBUG = "khot.debug"  # among what the contexts of a command line share


@contextmanager
def told(context: typer.Context) -> Iterator[None]:
    """Tell of an error in one line, and exit with its code; with --debug, the traceback first."""
    try:
        yield
        if sys.stdout is not None:  # as it is where it was closed
            sys.stdout.flush()  # here, where a full disk can still be told
    except KhotError as error:
        code = EXIT_CODES.get(type(error), FAILED)
        _tell(context, in_words(error), code)
    except UnicodeEncodeError:
        _tell(context, "arguments: must be UTF-8; got other bytes", USAGE)
    except MemoryError as error:
        _tell(context, f"memory: must be enough; got {error}. Ask for less at once.", FAILED)
    except (KeyboardInterrupt, typer.Abort) as stopped:
        _tell(context, str(stopped) or STOPPED_BY_CTRL_C, STOPPED)
    except BrokenPipeError:
        _drop_output()  # whoever read it has read enough, as `head` does
        raise typer.Exit(FAILED) from None
    except OSError as error:
        _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        then = ". Free some space, and run it again" if error.errno in _FULL else ""
        _tell(context, f"{where}{error.strerror or error}{then}", FAILED)


def _drop_output() -> None:
    """Let go of what could not be written, so that it does not fail again at the exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_words(error: KhotError) -> str:
    """What happened and what to do, for somebody at a shell."""
    # of a server that is there and says when to come back, the error's own is for everybody
    advice = ADVICE.get(type(error)) if error.retry_after_s is None else None
    text = f"{error.message.rstrip('.')}. {advice}" if advice else str(error)
    return _ONLY_ITEM.sub("", text)


def _tell(context: typer.Context, message: str, code: int) -> None:
    if context.meta.get(DEBUG):
        traceback.print_exc()
    typer.echo(f"khot: {' '.join(message.split())}", err=True)
    raise typer.Exit(code) from None

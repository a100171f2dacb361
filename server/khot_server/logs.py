"""Logs, on stderr: a line of JSON for each event; on a terminal, lines for people.

Set by `--log-level` and `--log-format`, which reach the processes as KHOT_LOG_LEVEL and
KHOT_LOG_FORMAT. Every line has its process; one of a call has `request_id` and `tenant`, one of
a job `job` and `tenant`. What callers send, tokens above all, is never logged.
"""

import logging
import os
import sys
from typing import Literal

import structlog

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]
LEVEL, FORMAT = "KHOT_LOG_LEVEL", "KHOT_LOG_FORMAT"


def environment(level: Level, form: Format) -> dict[str, str]:
    """The variables by which a process is told."""
    return {LEVEL: level, FORMAT: form}


def configure(process: str) -> None:
    """Set up logging in this process, whose name every line carries."""
    people = sys.stderr.isatty()
    form = os.environ.get(FORMAT, "auto")
    renderer = (
        structlog.dev.ConsoleRenderer(colors=people)
        if form == "console" or (form == "auto" and people)
        else structlog.processors.JSONRenderer()
    )
    level = logging.getLevelNamesMapping()[os.environ.get(LEVEL, "info").upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(process=process)


def debugging() -> bool:
    """Whether this process logs at debug level."""
    return os.environ.get(LEVEL) == "debug"

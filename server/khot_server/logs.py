"""Logs, on stderr: a line of JSON for each event; on a terminal, lines for people.

Set by `--log-level` and `--log-format`, which reach the processes as KHOT_LOG_LEVEL and
KHOT_LOG_FORMAT. Every line has its process; one of a call has `request_id` and `tenant`, one of
a job `job` and `tenant`. What callers send, tokens above all, is never logged.
"""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Literal

import structlog
from structlog.typing import Processor

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
        # its own way to show a traceback tells the values of variables too
        structlog.dev.ConsoleRenderer(
            colors=people, exception_formatter=structlog.dev.plain_traceback
        )
        if form == "console" or (form == "auto" and people)
        else structlog.processors.JSONRenderer()
    )
    level = logging.getLevelNamesMapping()[os.environ.get(LEVEL, "info").upper()]
    common = (
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    )
    structlog.configure(
        processors=[*common, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # a line is one write: other processes have the same stderr
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(process=process)
    _take_in_libraries(common, renderer, max(level, logging.WARNING))


def _take_in_libraries(common: Sequence[Processor], renderer: Processor, level: int) -> None:
    """Let what gRPC, asyncio and others warn of have lines as ours are, not text between them."""
    others = logging.StreamHandler(sys.stderr)
    last = (structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer)
    others.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=common, processors=last)
    )
    logging.basicConfig(handlers=[others], level=level, force=True)
    logging.captureWarnings(True)


def debugging() -> bool:
    """Whether this process logs at debug level."""
    return os.environ.get(LEVEL) == "debug"

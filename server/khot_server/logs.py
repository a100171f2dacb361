"""Logs: one line of key=value pairs an event, on stderr; JSON with KHOT_LOG_FORMAT=json."""

import os
import sys

import structlog


def configure(process: str) -> None:
    """Set up logging in this process, whose name every line carries."""
    renderer = (
        structlog.processors.JSONRenderer()
        if os.environ.get("KHOT_LOG_FORMAT") == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(process=process)

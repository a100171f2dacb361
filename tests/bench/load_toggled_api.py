"""The API process as it is, but that SIGUSR1 makes it count nothing, and the next count again.

Started by `load_metrics.py` in the place of `khot_server.api.app`: what metrics cost is the
difference within one process, for two that do the same differ by more than that.
"""

import signal

from khot_server.api import app
from khot_server.batching.batcher import Batch
from khot_server.metrics import CallMetrics, Metrics


class Switch:
    """Whether to count."""

    on = True

    @classmethod
    def turn(cls, *_: object) -> None:
        cls.on = not cls.on


class ToggledCalls(CallMetrics):
    """Counts calls while it shall."""

    def __init__(self, metrics: Metrics, method: str) -> None:
        super().__init__(metrics, method)
        received, sent = self.received, self.sent
        self.received = lambda size: received(size) if Switch.on else None
        self.sent = lambda size: sent(size) if Switch.on else None

    def begin(self) -> None:
        if Switch.on:
            super().begin()

    def end(self, code: str, seconds: float) -> None:
        if Switch.on:
            super().end(code, seconds)


class ToggledMetrics(Metrics):
    """Counts calls and batches while it shall."""

    def of_method(self, name: str) -> CallMetrics:
        return ToggledCalls(self, name)

    def batch_done(self, batch: Batch) -> None:
        if Switch.on:
            super().batch_done(batch)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, Switch.turn)
    app.Metrics = ToggledMetrics  # type: ignore[misc]
    app.main()

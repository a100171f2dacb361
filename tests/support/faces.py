"""One face for both clients, so that a test is written once and run with each."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from khot_client import AsyncClient, AsyncGroup, AsyncJob, Client

CLIENTS = (Client, AsyncClient)


class Face:
    """An AsyncClient, or what it made, whose methods block: each runs the loop until it is done."""

    def __init__(self, of: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._of, self._loop = of, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        return self._blocking(value) if callable(value) else value

    def __repr__(self) -> str:
        return repr(self._of).removeprefix("Async")

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            return self._shown(method(*args, **keywords))

        return call

    def _shown(self, value: Any) -> Any:
        if inspect.isasyncgen(value):
            return self._iterate(value)
        if inspect.iscoroutine(value):
            value = self._loop.run_until_complete(value)
        if isinstance(value, AsyncJob | AsyncGroup):
            return Face(value, self._loop)
        if isinstance(value, list):
            return [self._shown(item) for item in value]
        return value

    def _iterate(self, source: Any) -> Iterator[Any]:
        end = object()
        try:
            while (value := self._loop.run_until_complete(anext(source, end))) is not end:
                yield value
        finally:
            self._loop.run_until_complete(source.aclose())


class Faces:
    """Makes clients of one kind, and closes them all on exit."""

    def __init__(self, kind: type) -> None:
        self.kind, self.name = kind, kind.__name__
        self._loop = asyncio.new_event_loop() if kind is AsyncClient else None
        self._made: list[Any] = []

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        client = self.kind(*args, **keywords)
        made = client if self._loop is None else Face(client, self._loop)
        self._made.append(made)
        return made

    def run(self, coroutine: Any) -> Any:
        """The value of a coroutine, on the loop of the clients."""
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        for made in self._made:
            made.close()
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

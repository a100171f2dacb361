"""The API process's end of the link to an engine: frames, and slots of shared memory."""

import asyncio
import os
import socket
from collections.abc import Callable

from khot_server.messages import BatchRequest, BatchResult, Hello, LinkLost
from khot_server.worker import memory

_RECEIVE = 1 << 16


class Link:
    """A socket to one engine. Callbacks, not coroutines: a result is told as it arrives."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self._socket = link
        self._received = bytearray()
        self._slots: dict[int, _Slot] = {}
        self._listening = False

    async def hello(self) -> Hello:
        """The engine's first message.

        Raises:
            LinkLost: the engine is gone.
        """
        loop = asyncio.get_running_loop()
        while (body := self._frame()) is None:
            try:
                part = await loop.sock_recv(self._socket, _RECEIVE)
            except OSError as error:
                raise LinkLost from error
            if not part:
                raise LinkLost
            self._received += part
        return Hello.decode(body)

    def listen(self, result: Callable[[BatchResult], None], lost: Callable[[], None]) -> None:
        """Tell every result from now on, and once that the engine is gone."""

        def readable() -> None:
            try:
                part = self._socket.recv(_RECEIVE)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self._stop_listening()
                lost()
                return
            self._received += part
            while self._listening and (body := self._frame()) is not None:
                result(BatchResult.decode(body))

        self._listening = True
        asyncio.get_running_loop().add_reader(self._socket, readable)

    def memory(self, slot: int, size: int) -> memoryview:
        """The memory of a slot, at least `size` bytes; made anew if it had less."""
        held = self._slots.get(slot)
        if held is None or held.size < size:
            if held is not None:
                held.close()
            held = self._slots[slot] = _Slot(size)
        return held.memory

    def send(self, request: BatchRequest) -> None:
        """Ring the bell for what lies in the request's slot.

        Raises:
            LinkLost: the engine is gone, or does not read: a few bytes for each slot always fit.
        """
        slot, frame = self._slots[request.slot], request.encode()
        fds = [] if slot.unsent_fd is None else [slot.unsent_fd]
        try:
            sent = socket.send_fds(self._socket, [frame], fds) if fds else self._socket.send(frame)
        except OSError as error:
            raise LinkLost from error
        finally:
            slot.close()
        if sent != len(frame):
            raise LinkLost

    def close(self) -> None:
        self._stop_listening()
        self._socket.close()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

    def _stop_listening(self) -> None:
        if self._listening:
            self._listening = False
            asyncio.get_running_loop().remove_reader(self._socket)

    def _frame(self) -> bytes | None:
        """The body of the next frame, once it is whole."""
        size = 4 + int.from_bytes(self._received[:4], "little")
        if len(self._received) < max(4, size):
            return None
        body = bytes(self._received[4:size])
        del self._received[:size]
        return body


class _Slot:
    """Shared memory for one batch; its descriptor goes to the engine with the next message."""

    def __init__(self, size: int) -> None:
        self.size = 1 << max(16, (size - 1).bit_length())
        fd = memory.create(self.size)
        self.unsent_fd: int | None = os.dup(fd)
        self.memory = memoryview(memory.attach(fd))

    def close(self) -> None:
        """Close the descriptor; the memory stays for as long as something looks at it."""
        if self.unsent_fd is not None:
            os.close(self.unsent_fd)
            self.unsent_fd = None

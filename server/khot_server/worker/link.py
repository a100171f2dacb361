"""The API process's end of the link to the engine: frames, and slots of shared memory."""

import asyncio
import os
import socket
from dataclasses import replace

import numpy as np

from khot_server.messages import Array, BatchRequest, BatchResult, Hello, Layout, decode, encode
from khot_server.worker import memory


class LinkLost(Exception):
    """The engine is gone."""


class Link:
    """A socket to one engine. Everything on it raises LinkLost once the engine is gone."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self._socket = link
        self._slots: dict[int, Slot] = {}

    async def hello(self) -> Hello:
        """The engine's first message."""
        message = await self._receive()
        assert isinstance(message, Hello)
        return message

    async def result(self) -> BatchResult:
        """The engine's next result."""
        message = await self._receive()
        assert isinstance(message, BatchResult)
        return message

    def slot(self, number: int, size: int) -> "Slot":
        """The slot of this number, with room for `size` bytes; made anew if it had less."""
        slot = self._slots.get(number)
        if slot is None or slot.size < size:
            slot = self._slots[number] = Slot(size)
        return slot

    async def send(self, request: BatchRequest) -> None:
        """Ring the bell for what lies in the request's slot."""
        slot = self._slots[request.slot]
        fd, slot.unsent_fd = slot.unsent_fd, None
        try:
            if fd is not None:
                # The length goes ahead with the descriptor: a few bytes always fit.
                frame = encode(replace(request, new_memory=1))
                socket.send_fds(self._socket, [frame[:4]], [fd])
                frame = frame[4:]
            else:
                frame = encode(request)
            await asyncio.get_running_loop().sock_sendall(self._socket, frame)
        except OSError as error:
            raise LinkLost from error
        finally:
            if fd is not None:
                os.close(fd)

    async def _receive(self) -> Hello | BatchRequest | BatchResult:
        size = int.from_bytes(await self._exactly(4), "little")
        return decode(await self._exactly(size))

    async def _exactly(self, size: int) -> bytes:
        loop, parts = asyncio.get_running_loop(), bytearray()
        while len(parts) < size:
            try:
                part = await loop.sock_recv(self._socket, size - len(parts))
            except OSError as error:
                raise LinkLost from error
            if not part:
                raise LinkLost
            parts += part
        return bytes(parts)

    def close(self) -> None:
        self._socket.close()
        for slot in self._slots.values():
            slot.close()


class Slot:
    """Shared memory for one batch; its descriptor goes to the engine with the next message."""

    def __init__(self, size: int) -> None:
        self.size = 1 << max(16, (size - 1).bit_length())
        fd = memory.create(self.size)
        self.unsent_fd: int | None = os.dup(fd)
        self._memory = memoryview(memory.attach(fd))

    def write(self, at: int, array: Array) -> int:
        """Copy the array to byte `at`; return the byte after it."""
        end = at + array.nbytes
        target = np.frombuffer(self._memory, array.dtype, array.size, at)
        target[:] = array.reshape(-1)
        return end

    def rows(self, layout: Layout, rows: slice) -> bytes:
        """The bytes of these rows of the result."""
        first, last = (layout.result + row * layout.result_row for row in (rows.start, rows.stop))
        return bytes(self._memory[first:last])

    def close(self) -> None:
        if self.unsent_fd is not None:
            os.close(self.unsent_fd)
            self.unsent_fd = None

"""How often the bytes of a tensor are copied: server/README.md counts them, and so does this.

Python allocates memory for each copy that is not into the slot, so the peak of what a call
allocates, in units of its payload, is the number of copies it holds at once.
"""

import asyncio
import tracemalloc

import numpy as np
import pytest

from khot_proto import from_tensor, to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_server.api.khot_servicer import METHODS, KHotService
from khot_server.batching.batcher import Batcher
from khot_server.batching.policy import Limits
from khot_server.messages import BatchRequest, BatchResult, Hello, OperatorInfo

ROWS, N = 64, 16_384
PAYLOAD = 4 * ROWS * N
INFO = OperatorInfo("same", "relaxation", "", "", {}, {}, True, False, False, False, False)


class Link:
    """An engine in this process that returns the scores themselves."""

    def __init__(self) -> None:
        self.written = 0
        self.slots = [memoryview(bytearray(3 * PAYLOAD)) for _ in range(2)]

    async def hello(self) -> Hello:
        return Hello((INFO,), "cpu", 1)

    def listen(self, result, lost) -> None:
        self.result = result

    def memory(self, slot: int, size: int) -> memoryview:
        assert size <= 3 * PAYLOAD
        return self.slots[slot]

    def send(self, request: BatchRequest) -> None:
        memory, layout = self.slots[request.slot], request.layout
        (here, width), (there, _) = layout["scores"], layout["soft"]
        size = width * request.rows
        memory[there : there + size] = memory[here : here + size]
        result = BatchResult(request.id, 1, algorithm="copy")
        asyncio.get_running_loop().call_soon(lambda: self.result(result))

    def close(self) -> None:
        pass


class Seen:
    def engine_connected(self, hello) -> None: ...
    def engine_lost(self) -> None: ...
    def batch_done(self, batch) -> None: ...


class Context:
    def time_remaining(self) -> None:
        return None


async def peak(raw: bytes, limits: Limits) -> tuple[bytes, float]:
    """The reply, and the most memory that the call held, in payloads."""
    batcher = Batcher(limits, Seen())

    async def connected() -> None: ...

    serving = asyncio.create_task(batcher.serve(Link(), connected))
    while not batcher.operators:
        await asyncio.sleep(0)
    service = KHotService(batcher, pb.Limits(max_message_bytes=1 << 30))
    call = service._unary(METHODS["Relax"])
    await call(raw, Context())
    tracemalloc.start()
    try:
        reply = await call(raw, Context())
        most = tracemalloc.get_traced_memory()[1] / PAYLOAD
    finally:
        tracemalloc.stop()
        serving.cancel()
    return reply, most


@pytest.mark.parametrize(
    ("items", "limits", "copies"),
    [
        (1, Limits(batch_elements=ROWS * N), 1),  # the reply itself
        (1, Limits(batch_elements=ROWS * N // 4), 2),  # its chunks, and the reply
        (2, Limits(batch_elements=ROWS * N), 3),  # the first item, and the reply of both
    ],
    ids=["whole", "in chunks", "two items"],
)
def test_copies_of_a_large_request(items, limits, copies):
    x = np.random.default_rng(0).normal(size=(ROWS, N)).astype("float32")
    one = pb.RelaxItem(operator="same", scores=to_tensor(x), k=[3.0])
    raw = pb.RelaxRequest(items=[one] * items).SerializeToString()
    reply, most = asyncio.run(peak(raw, limits))
    for result in pb.RelaxResponse.FromString(reply).results:
        np.testing.assert_array_equal(from_tensor(result.soft), x)
    assert copies <= most < copies + 0.1

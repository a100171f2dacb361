"""The generator that checks every call: a grpc.aio client in a process of its own.

`python load_client.py '{"loop": "closed", ...}'` prints what it saw as JSON. Three loops, all on
raw bytes, so that no message is made or read while time is measured; what came back is read and
checked afterwards.

    closed: `callers` calls under way on `channels` connections, until `requests` were answered
    stream: the same on one Stream, `callers` requests under way
    open:   calls at fixed times, whatever became of those before, on `channels` connections
"""

import asyncio
import gc
import json
import sys
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
from load_runs import REFUSED, Call, Phase, schedule, stages, stream_id, stream_request

from khot_proto.v1 import khot_service_pb2 as pb

LARGEST = 64 << 20
TIMEOUT_S = 30.0
OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_send_message_length", LARGEST),
    ("grpc.use_local_subchannel_pool", 1),  # or all channels would share a connection
    ("grpc.enable_retries", 0),
]
LEAD_S = 0.1


class Generator:
    """One loop against one method."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.body = Path(spec["body"]).read_bytes()
        self.replies: list[bytes] = []

    async def run(self) -> dict[str, Any]:
        loops = {"closed": self.closed, "stream": self.stream, "open": self.open}
        count = self.spec.get("channels", 1)
        self.channels = [
            grpc.aio.insecure_channel(self.spec["address"], OPTIONS) for _ in range(count)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in self.channels))
        gc.disable()  # a run is bounded, and a collection would look like a slow server
        start = time.perf_counter()
        seen = await loops[self.spec["loop"]]()
        seen["seconds"] = time.perf_counter() - start
        gc.enable()
        for channel in self.channels:
            await channel.close()
        return {**seen, **self.read()}

    def methods(self) -> list[Any]:
        return [channel.unary_unary(self.spec["path"]) for channel in self.channels]

    async def closed(self) -> dict[str, Any]:
        """An RPC that fails ends the run: it raises here."""
        left, latencies = iter(range(self.spec["requests"])), []

        async def caller(method: Any) -> None:
            for _ in left:
                start = time.perf_counter()
                reply = await method(self.body, timeout=TIMEOUT_S)
                latencies.append(time.perf_counter() - start)
                self.replies.append(reply)

        callers = zip(range(self.spec["callers"]), cycle(self.methods()), strict=False)
        await asyncio.gather(*(caller(method) for _, method in callers))
        return {"latencies_s": latencies}

    async def stream(self) -> dict[str, Any]:
        """Reading and writing side by side, as many callers would."""
        stream: Any = self.channels[0].stream_stream(self.spec["path"])(timeout=TIMEOUT_S)
        room, sent, latencies = asyncio.Semaphore(self.spec["callers"]), {}, []

        async def write() -> None:
            for number in range(1, self.spec["requests"] + 1):
                await room.acquire()
                sent[number] = time.perf_counter()
                await stream.write(stream_request(number, self.body))
            await stream.done_writing()

        async def read() -> None:
            while (reply := await stream.read()) is not grpc.aio.EOF:
                latencies.append(time.perf_counter() - sent.pop(stream_id(reply)))
                self.replies.append(reply)
                room.release()

        await asyncio.gather(write(), read())
        if sent:
            raise ValueError(f"stream: must answer every request; got {len(sent)} unanswered")
        return {"latencies_s": latencies}

    async def open(self) -> dict[str, Any]:
        calls: list[Call] = []
        strange = Counter[str]()
        start = time.perf_counter() + LEAD_S

        async def call(method: Any, at: float, sent: float) -> None:
            try:
                self.replies.append(await method(self.body, timeout=TIMEOUT_S))
                code = "OK"
            except grpc.aio.AioRpcError as error:
                code = error.code().name
                if code != REFUSED:
                    strange[f"{code}: {error.details()}"] += 1
            calls.append(Call(at, sent - at, time.perf_counter() - start - at, code))

        phases = [Phase(*phase) for phase in self.spec["phases"]]
        async with asyncio.TaskGroup() as group:
            for at, method in zip(schedule(phases), cycle(self.methods()), strict=False):
                wait = start + at - time.perf_counter()
                # also 0, now and then, or a generator that is late would never read an answer
                await asyncio.sleep(max(0.0, wait))
                group.create_task(call(method, at, time.perf_counter() - start))
        return {"start": start, "calls": [vars(call) for call in calls], "strange": strange}

    def read(self) -> dict[str, Any]:
        """The stages that the replies tell of, where they are ours and all well."""
        if self.spec["reply"] is None:
            return {}
        found = []
        for data in self.replies:
            reply = getattr(pb, self.spec["reply"]).FromString(data)
            if self.spec["loop"] == "stream":
                if not reply.relax.results:
                    raise ValueError(f"stream: answers must hold a result; got {reply}")
                reply = reply.relax
            for result in reply.results:
                if result.status.code:
                    raise ValueError(f"reply: status must be OK; got {result.status}")
                found.append(stages(result.timing))
        return {"stages": found}


if __name__ == "__main__":
    json.dump(asyncio.run(Generator(json.loads(sys.argv[1])).run()), sys.stdout)

"""The echo that our server is measured against: the least a gRPC server in Python can do.

`python load_echo.py`: a bare grpc.aio server whose handler neither reads nor makes a message. It
takes any bytes, and what it answers to `/khot.bench.Echo/3200` is 3200 bytes, made beforehand. It
says its port and ends with its standard input.
"""

import asyncio
import sys
from functools import cache
from typing import Any

import grpc

SERVICE = "/khot.bench.Echo/"
LARGEST = 64 << 20


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return handler(int(handler_call_details.method.removeprefix(SERVICE)))


@cache
def handler(size: int) -> Any:
    reply = bytes(size)

    async def answer(request: bytes, context: Any) -> bytes:
        return reply

    return grpc.unary_unary_rpc_method_handler(answer)


async def serve() -> None:
    options = [
        ("grpc.max_receive_message_length", LARGEST),
        ("grpc.max_send_message_length", LARGEST),
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(serve())

"""Calls for tests of processes: one that is quick, one that takes long, and callers who go on."""

import threading
from collections import Counter

import grpc
import numpy as np

from khot_proto import to_tensor
from khot_proto.v1 import khot_service_pb2 as pb
from khot_proto.v1.khot_service_pb2_grpc import KHotServiceStub


def scores(rows: int, n: int):
    return to_tensor(np.random.default_rng(0).normal(size=(rows, n)).astype(np.float32))


def quick(rows: int = 1, n: int = 10) -> pb.RelaxRequest:
    """A relaxation; calls of another n go into another batch."""
    return pb.RelaxRequest(
        items=[pb.RelaxItem(operator="sigmoid_topk", scores=scores(rows, n), k=[3])]
    )


def slow(n: int = 3000) -> pb.SampleRequest:
    """A draw that keeps an engine busy for about n / 2 milliseconds; n is at least 7."""
    return pb.SampleRequest(
        items=[pb.SampleItem(operator="brewer", scores=scores(1, n), k=[n // 2], seed=1)]
    )


class Callers:
    """Threads that each call again and again, on a connection of their own, until `stop`.

    Attributes:
        codes: how many calls ended how.
    """

    def __init__(self, address: str, count: int, *, refused: bool = False) -> None:
        """Start them. With `refused`, a caller who is refused gives up."""
        self.codes: Counter[str] = Counter()
        self._address, self._refused = address, refused
        self._changed, self._stopped = threading.Condition(), False
        self._threads = [threading.Thread(target=self._call, args=(i,)) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def _call(self, number: int) -> None:
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 200)]
        with grpc.insecure_channel(self._address, options) as channel:
            call = KHotServiceStub(channel).Relax
            while not self._stopped:
                code = "OK"
                try:
                    # of another n each, so that they do not share a batch
                    result = call(quick(n=100 + number), timeout=60).results[0]
                    assert result.status.code == 0, result.status.message
                except grpc.RpcError as error:
                    code = error.code().name
                with self._changed:
                    self.codes[code] += 1
                    self._changed.notify_all()
                    if code != "OK" and self._refused:
                        return
                    if code != "OK":
                        self._changed.wait(0.05)  # as any client would before it calls again

    def wait_for(self, code: str, more: int = 1) -> None:
        """Wait until so many more calls have ended so."""
        with self._changed:
            most = self.codes[code] + more
            assert self._changed.wait_for(lambda: self.codes[code] >= most, 60), self.codes

    def stop(self) -> Counter[str]:
        """Let them finish; how many calls ended how."""
        self._stopped = True
        return self.join()

    def join(self) -> Counter[str]:
        for thread in self._threads:
            thread.join(90)
        assert not any(thread.is_alive() for thread in self._threads)
        return self.codes

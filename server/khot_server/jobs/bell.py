"""A socket between a runner and the API process: any byte means "look at the store now".

The API rings when a job was submitted, the runner when an event was committed. A bell
carries no content, so a ring that is lost or doubled does no harm; who has no bell, or
whose bell is closed, polls.
"""

import contextlib
import socket


class Bell:
    """One end of a bell; without a socket it is silent.

    The calls are non-blocking one by one: the mode of the socket itself would be shared
    with every process that has a copy of it.
    """

    def __init__(self, connected: socket.socket | None) -> None:
        self._socket = connected

    @property
    def socket(self) -> socket.socket | None:
        """What to wait on; None if nobody can ring."""
        return self._socket

    def ring(self) -> None:
        """Wake the other side, if it listens and is not awake already."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(b"!", socket.MSG_DONTWAIT)

    def drain(self) -> None:
        """Take what was rung; a bell found closed is silent from then on."""
        try:
            while self._socket is not None:
                if not self._socket.recv(4096, socket.MSG_DONTWAIT):
                    self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

"""A pipe that tells a process that its parent is gone, however that died.

The parent alone holds the write end and never writes; when it ends, by whatever signal,
the kernel closes that end and the child reads the end of the file.
"""

import os
import threading
from collections.abc import Callable


def watch(descriptor: int, before_exit: Callable[[], None] = lambda: None) -> None:
    """Exit at once, from a thread, when the other end of the pipe has closed.

    Args:
        descriptor: the read end.
        before_exit: called first.
    """

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        try:
            before_exit()
        finally:
            # Not sys.exit: the main thread may be inside a long call, and nothing is left
            # to be said to anyone.
            os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()

"""A call as data: what to send, and how to read the answer.

Requests are built and answers are read without any I/O, so that the blocking client and
the one for asyncio share all of it; each only sends.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from khot_client.errors import ServerError

T = TypeVar("T")


class Call(NamedTuple, Generic[T]):
    """A call to make.

    Attributes:
        method: of any of the services, such as `Relax`: no two have one of the same name.
        request: its message.
        parse: makes what the caller sees of the answer; raises KhotError, or ValueError for
            what cannot be read.
    """

    method: str
    request: Any
    parse: Callable[[Any], T]

    def read(self, answer: Any) -> T:
        """What the caller sees of the answer.

        Raises:
            KhotError: the answer says so, or cannot be read.
        """
        try:
            return self.parse(answer)
        # it contradicts itself, or a later version wrote it
        except (ValueError, OverflowError) as error:
            raise ServerError(f"reply: {error}") from None

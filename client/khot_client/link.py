"""The way to a server, for what is copied, pickled and forked: settings, and a client on demand."""

import os
import threading
from typing import Any

from khot_client.client import Client
from khot_client.messages import invalid
from khot_client.settings import resolve
from khot_client.values import Operator


class Link:
    """Settings, and a client of this process from the first use on. May be shared by threads.

    A copy is the link itself. A pickle has the settings but for the token: files of models go
    from hand to hand.

    Args:
        address: as in `Client`; or a client, to be used as it is.
        settings: `token`, `tls` and `profile`, as in `Client`; all None beside a client.

    Raises:
        BadSettings: an argument cannot be used.
        InvalidRequest: settings are given beside a client.
    """

    def __init__(self, address: str | Client | None, **settings: Any) -> None:
        self._theirs = address if isinstance(address, Client) else None
        self._settings = settings | {"address": address}
        if not isinstance(address, Client):
            self.address = resolve(cert=None, key=None, **self._settings).address
        else:
            self.address = address.address
            if given := [name for name, value in settings.items() if value is not None]:
                must = f"must be host:port where {', '.join(given)} is given"
                raise invalid("address", must, "a Client")
        self._unconnected()

    def _unconnected(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._ours: Client | None = None
        self._operators: dict[str, Operator] = {}

    def operator(self, name: str) -> tuple[Client, Operator]:
        """The client, and what its server says of the operator, which is asked once.

        Raises:
            InvalidRequest: there is no such operator; the message lists those there are.
            KhotError: the call failed.
        """
        if self._pid != os.getpid():
            self._unconnected()  # gRPC's connections, and locks, do not survive a fork
        with self._lock:
            if self._theirs is None and self._ours is None:
                self._ours = Client(**self._settings)
            client = self._theirs or self._ours
            assert client is not None
            if name not in self._operators:
                self._operators = {row.name: row for row in client.list_operators()}
            if name not in self._operators:
                raise invalid(
                    "operator", f"must be one of {', '.join(self._operators)}", repr(name)
                )
            return client, self._operators[name]

    def __deepcopy__(self, _: object) -> "Link":
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self._theirs is not None:
            raise invalid("address", "must be host:port to be pickled", "a Client")
        return {"address": self.address, "_settings": self._settings | {"token": None}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _theirs=None)
        self._unconnected()

"""The Python client of the khot service. Imports neither torch nor khot.

What it offers is listed in `_public.py`, and loaded when the first of it is asked for: the `khot`
command has to be there before gRPC is, to answer a Ctrl-C.
"""

import os as _os
import typing as _typing
from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

# gRPC's core would print every handshake that fails, beside the exception that says so. It reads
# this when it is imported, and ERROR is what its documentation calls the default.
_os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

if _typing.TYPE_CHECKING:
    from khot_client._public import *  # noqa: F403
    from khot_client._public import __all__ as __all__
    from khot_client._public import __version__ as __version__
else:

    def __getattr__(name: str) -> object:
        """Load all of it, at the first name that is not there yet.

        A module of ours that is asked for before it was imported is such a name too. That one
        comes alone: it is our modules that ask so for each other, while they are being loaded.
        """
        if _find_spec(f"{__name__}.{name}") is not None:
            return _import_module(f"{__name__}.{name}")
        public = _import_module("khot_client._public")
        found = {each: getattr(public, each) for each in public.__all__}
        globals().update(found, __all__=public.__all__)
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

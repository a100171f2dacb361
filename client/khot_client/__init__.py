"""The Python client of the khot service. Imports neither torch nor khot."""

from importlib.metadata import version as _version

__version__ = _version("khot")

__all__ = ["__version__"]

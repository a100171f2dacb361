"""Load the shared object of the C kernels, and declare what is called in it.

The baseline object is asked which variant the CPU supports, and that one is used.
`KHOT_NATIVE` overrules: `0` turns the kernels off, `1` (or unset) lets the CPU
choose, the name of a variant insists on it. Whatever fails, khot runs on torch
operations and `native_info` says why.
"""

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from khot._checks import refuse
from khot._native.build import VARIANTS, object_path

POINTER, INT64, INT32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
_SUFFIXES = {torch.float32: "_f32", torch.float64: "_f64"}


@dataclass(frozen=True)
class NativeInfo:
    """Which path the operators take on CPU tensors.

    Attributes:
        in_use: whether the C kernels are used; if not, torch operations are.
        variant: `baseline` or `avx2`, or None.
        path: the shared object, or None.
        openmp: whether the kernels share their rows out over torch's threads.
        reason: why this is so, in words.
    """

    in_use: bool
    variant: str | None
    path: str | None
    openmp: bool
    reason: str


class _Library:
    """The loaded object, or the reason why there is none."""

    def __init__(self, wish: str) -> None:
        self.object: ctypes.CDLL | None = None
        self.threads: int | None = None
        self.info = NativeInfo(False, None, None, False, "")
        if wish not in ("0", "1", *VARIANTS):
            known = ", ".join(("0", "1", *VARIANTS))
            refuse("khot", f"KHOT_NATIVE must be one of {known}", repr(wish))
        if wish == "0":
            self.turn_off("KHOT_NATIVE=0")
        elif not object_path("baseline").exists():
            self.turn_off("no kernels were built: no C compiler was found at installation")
        else:
            try:
                self._load(wish)
            except OSError as error:
                self.turn_off(f"the kernels could not be loaded: {error}")

    def turn_off(self, reason: str) -> None:
        self.object = None
        self.info = NativeInfo(False, None, None, False, reason)

    def _load(self, wish: str) -> None:
        baseline = ctypes.CDLL(str(object_path("baseline")))
        baseline.khot_best_variant.restype = ctypes.c_char_p
        best = baseline.khot_best_variant().decode()
        variant = best if wish == "1" else wish
        if variant not in ("baseline", best):
            raise OSError(f"KHOT_NATIVE={wish} must be supported by the CPU; got one without it")
        path = str(object_path(variant))
        self.object = ctypes.CDLL(path)
        openmp = bool(self.object.khot_has_openmp())
        reason = "the CPU supports it" if wish == "1" else f"KHOT_NATIVE={wish}"
        self.info = NativeInfo(True, variant, path, openmp, reason)


_library = _Library(os.environ.get("KHOT_NATIVE", "1"))


class Kernel:
    """A C function that exists once per dtype, `<symbol>_f32` and `<symbol>_f64`, or others."""

    def __init__(
        self,
        symbol: str,
        *argtypes: type,
        restype: type | None = None,
        suffixes: Mapping[torch.dtype, str] = _SUFFIXES,
    ) -> None:
        self._functions: dict[torch.dtype, Callable[..., int]] = {}
        for dtype, suffix in suffixes.items():
            if _library.object is None:
                return
            try:
                function = _library.object[symbol + suffix]
            except AttributeError:
                _library.turn_off(f"the built kernels lack {symbol}{suffix}: build them again")
                return
            function.argtypes, function.restype = argtypes, restype
            self._functions[dtype] = function

    def __getitem__(self, dtype: torch.dtype) -> Callable[..., int]:
        return self._functions[dtype]


def native_info() -> NativeInfo:
    """Return which path the operators take on CPU tensors, and why."""
    return _library.info


def accepts(*tensors: Tensor) -> bool:
    """Whether kernels are in use and can read these tensors' memory.

    Not on other devices, not of subclasses, and not the wrappers of torch.func and
    of batched gradients, which have no memory of their own.
    """
    if _library.object is None:
        return False
    # a loop, not all(...): a generator costs more than the look
    for tensor in tensors:
        if not (tensor.is_cpu and type(tensor) in _PLAIN and _has_memory(tensor)):
            return False
    return True


def set_kernel_threads(count: int | None) -> None:
    """Set how many threads the C kernels use; None for as many as torch does, as at the start.

    Kernels give a row the same bits at any number of threads, torch operations only at one. So
    who wants the same bits in every batch, and all cores, sets torch to one thread and the
    kernels to the number of cores.

    Args:
        count: at least 1, or None.

    Raises:
        TypeError: count is not an integer.
        ValueError: it is below 1, or above 1024.

    Example:
        >>> import khot
        >>> khot.set_kernel_threads(2)
        >>> khot.set_kernel_threads(None)
    """
    if count is not None:
        who = "set_kernel_threads"
        if isinstance(count, bool) or not isinstance(count, int):
            refuse(who, "count must be an integer or None", type(count).__name__, TypeError)
        if not 1 <= count <= 1024:
            refuse(who, "count must be in [1, 1024]", str(count))
    _library.threads = count


def threads() -> int:
    """How many threads a kernel may use: what was set, or torch's own number."""
    return _library.threads or torch.get_num_threads()


_PLAIN = (Tensor, torch.nn.Parameter)
# Private to torch; were it to go, no tensor is taken to have memory and torch operations are used.
_has_memory: Callable[[Tensor], bool] = getattr(torch._C, "_has_storage", lambda _: False)

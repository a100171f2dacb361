"""The C kernels: building, loading, and a Python face for each.

`<operator>.c` holds an operator's kernels and `<operator>.py` declares them;
`build.py` compiles all of them, `library.py` loads what was built.
"""

from khot._native.library import NativeInfo, native_info, set_kernel_threads

__all__ = ["NativeInfo", "native_info", "set_kernel_threads"]

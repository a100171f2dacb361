"""Anonymous shared memory: a file without a name, its descriptor passed to the other side.

Nothing is ever named, so nothing can be left behind by any death: the kernel frees
the pages with the last process that holds them.
"""

import mmap
import os
import tempfile


def create(size: int) -> int:
    """A descriptor of `size` bytes of new memory: a memfd, or an unlinked temporary file."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("khot-slot", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def attach(fd: int) -> mmap.mmap:
    """The memory of a descriptor, which is closed: the mapping holds it."""
    try:
        return mmap.mmap(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)

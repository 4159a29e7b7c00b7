"""Threads of a process by /proc/PID/task: their names, and their time on CPUs and in run queues.

A system call that Python makes gives up its lock, and where other threads run Python code it gets
it back 5 ms later. Reading dozens of files would take seconds, so they are read by calls that
keep the lock: some 10 us a thread.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

NAME_AT = 19
"""The name begins at this byte of a directory entry, on 64-bit Linux."""
MOST_BYTES = 128


class Times(NamedTuple):
    """Nanoseconds that a thread was on a CPU since it began, and runnable without one."""

    cpu_ns: int
    run_queue_ns: int

    def since(self, before: Times | None) -> Times:
        """What it has used since `before`; one that has another's number began since then."""
        if before is None or self.cpu_ns < before.cpu_ns:
            return self
        return Times(self.cpu_ns - before.cpu_ns, self.run_queue_ns - before.run_queue_ns)


class Files:
    """Reads files of /proc about the threads of a process, without giving up Python's lock."""

    def __init__(self, pid: int | str = "self") -> None:
        self._folder = f"/proc/{pid}/task"
        library = ctypes.PyDLL(None)
        self._open, self._read, self._close = library.open, library.read, library.close
        self._read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        self._read.restype = ctypes.c_ssize_t
        self._opendir, self._readdir = library.opendir, library.readdir
        self._closedir = library.closedir
        self._opendir.restype = self._readdir.restype = ctypes.c_void_p
        self._readdir.argtypes = self._closedir.argtypes = (ctypes.c_void_p,)
        self._buffer = ctypes.create_string_buffer(MOST_BYTES)

    def threads(self) -> list[int]:
        """The numbers of all threads; none where the process is over."""
        tids: list[int] = []
        folder = self._opendir(self._folder.encode())
        if folder is None:
            return tids
        while (entry := self._readdir(folder)) is not None:
            name = ctypes.string_at(entry + NAME_AT)
            if name.isdigit():
                tids.append(int(name))
        self._closedir(folder)
        return tids

    def times_of(self, tid: int) -> Times | None:
        """What thread `tid` has used; None where it is over, or the system does not tell."""
        fields = self._content(f"{tid}/schedstat").split()
        return Times(int(fields[0]), int(fields[1])) if len(fields) > 1 else None

    def name_of(self, tid: int) -> str:
        """The name that the system has for thread `tid`."""
        return self._content(f"{tid}/comm").decode(errors="replace").strip() or "?"

    def _content(self, path: str) -> bytes:
        file = self._open(f"{self._folder}/{path}".encode(), os.O_RDONLY)
        if file < 0:
            return b""
        size = self._read(file, self._buffer, MOST_BYTES)
        self._close(file)
        return self._buffer.raw[:size] if size > 0 else b""

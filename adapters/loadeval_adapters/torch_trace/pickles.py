"""What a worker that is not forked is sent: its process is pickled, and the dataset with it."""

from __future__ import annotations

import io
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch.utils.data  # noqa: F401 - a worker imports it before it unpickles, so it is not timed

BEGIN_UNPICKLING = f"c{__name__}\nbegin_unpickling\n)R0".encode()
"""Opcodes of pickle that call that function and drop what it returns.

They may stand before any pickle, whose content they leave as it is.
"""
unpickling_began_ns = 0
"""When this process began to unpickle what a worker is sent; 0 in one that was sent nothing."""


def begin_unpickling() -> None:
    """Called in a worker, by `BEGIN_UNPICKLING`."""
    global unpickling_began_ns  # noqa: PLW0603 - a process is sent one worker
    unpickling_began_ns = perf_counter_ns()


def timed_dump(
    dump: Callable[..., None], mark: object, took: dict[int, dict[str, int]]
) -> Callable[..., None]:
    """Wrap the `dump` with which multiprocessing pickles the processes that it starts.

    `took` gets columns of WorkerStart, by the identity of each process that has `mark` among its
    arguments.
    """

    def timed(sent: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        is_worker = any(argument is mark for argument in getattr(sent, "_args", ()))
        # Writing into a pipe waits for the worker.
        if not is_worker or type(file) is not io.BytesIO:
            dump(sent, file, *args, **kwargs)
            return
        file.write(BEGIN_UNPICKLING)
        start, start_ns = file.tell(), perf_counter_ns()
        dump(sent, file, *args, **kwargs)
        took[id(sent)] = {
            "pickling_start_ns": start_ns,
            "pickling_ns": perf_counter_ns() - start_ns,
            "sent_bytes": file.tell() - start,
        }

    return timed

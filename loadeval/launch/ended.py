"""Notes, in the program that an error ends, what nobody knows afterwards: see why_ended."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import traceback
from collections import Counter
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from loadeval.launch.loadeval_inject import ERROR_MARK

SHARED_MEMORY = "shared memory of tensors"
NO_FILES = re.compile(r"Too many open files|\[Errno 24\]|items of ancdata")
MOST_LOOKED_AT = 65_536
DEEPEST = 6


def note(folder: Path, error: BaseException) -> None:
    """Write down what ends this program, while there are the frames that tell it."""
    each: BaseException | None = error
    texts, frames = list[str](), list[Any]()
    while each is not None and len(texts) < DEEPEST:
        texts.append(f"{type(each).__name__}: {each}")
        frames += [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        each = each.__cause__ or each.__context__
    for frame in frames:  # whatever error came first of the death of a worker
        workers = getattr(frame.f_locals.get("self"), "_workers", ())
        for worker in workers if isinstance(workers, list) else ():
            if (getattr(worker, "exitcode", 0) or 0) < 0:
                died = signal.strsignal(-worker.exitcode)
                texts.append(f"DataLoader worker (pid {worker.pid}) is killed by signal: {died}.")
    noted: dict[str, Any] = {"error": "\n".join(texts)}
    if NO_FILES.search(noted["error"]):
        noted["limit"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        noted["files"] = open_files(min(noted["limit"], MOST_LOOKED_AT)).most_common(1)
    for frame in frames:
        code = frame.f_code
        if code.co_name == "dump" and code.co_filename.endswith("multiprocessing/reduction.py"):
            sent = getattr(frame.f_locals.get("obj"), "_args", ())
            named = ((part, type(part).__qualname__) for part in sent)
            found = (unpicklable(part, name) for part, name in named)
            noted["unpicklable"] = next(filter(None, found), "")
    with suppress(FileExistsError), (folder / ERROR_MARK).open("x", encoding="utf-8") as file:
        json.dump(noted, file)  # of several ranks the first one says why


def open_files(most: int) -> Counter[str]:
    """What this process has open, of the first so many descriptors; it needs no other for that."""
    kinds = Counter[str]()
    for number in range(most):
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - a path would be made of each
            kind = "pipes" if path.startswith("pipe:") else "sockets"
            if path.startswith("/"):
                kind = f"files in {os.path.dirname(path)}"  # noqa: PTH120 - as above
            kinds[SHARED_MEMORY if path.startswith(("/dev/shm/", "/memfd:")) else kind] += 1  # noqa: S108
    return kinds


def unpicklable(value: Any, name: str, depth: int = DEEPEST) -> str | None:
    """The part of `value` that cannot be pickled, with its name; None where all of it can be."""
    try:
        ForkingPickler.dumps(value)
    except RuntimeError:  # a queue or a lock of processes, which only a process that starts is sent
        return None
    except Exception:  # noqa: BLE001 - whatever its own code raises
        parts = [(f".{key}", part) for key, part in getattr(value, "__dict__", {}).items()]
        if isinstance(value, (dict, list, tuple)):
            keys = value.items() if isinstance(value, dict) else enumerate(value)
            parts = [(f"[{key!r}]", part) for key, part in keys]
        found = (unpicklable(part, f"{name}{key}", depth - 1) for key, part in parts if depth)
        kind = getattr(value, "__qualname__", type(value).__qualname__)
        return next(filter(None, found), f"{name} ({kind})")
    return None

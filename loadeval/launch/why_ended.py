"""Why an error of its loader ended a program: one line beside its own traceback.

`note` writes down, in the program, what nobody knows afterwards; `why_ended` says it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from loadeval.data.columns import mean_known
from loadeval.data.environment import SHM
from loadeval.data.run import Run, host_values
from loadeval.launch.loadeval_inject import ERROR_MARK
from loadeval.probes.limits import memory_limit
from loadeval.probes.processes import amounts_in, content_of
from loadeval.words import counted, size

SHARED_MEMORY = "shared memory of tensors"
NO_FILES = re.compile(r"Too many open files|\[Errno 24\]|items of ancdata")
DIED = re.compile(r"DataLoader worker \(pid\(?s?\)? *([\d, ]+)\) is killed by signal: ([\w ]+)")
NO_SHARED_MEMORY = re.compile(
    r"by signal: Bus error|(/torch_|shared memory|shm_open).*No space left"
)
NO_MEMORY = re.compile(r"can't allocate memory|Cannot allocate memory|\b(_Array)?MemoryError\b")
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


def why_ended(folder: Path, runs: Sequence[Run]) -> str:  # noqa: PLR0911 - one for each cause
    """Why the loader ended the program that wrote in `folder`; "" where that is not known.

    `runs` are the logs of its loaders, the training loader's first.
    """
    noted = dict[str, Any]()
    with suppress(OSError, ValueError):
        noted = json.loads((folder / ERROR_MARK).read_text(encoding="utf-8"))
    error, training = str(noted.get("error", "")), next(iter(runs), None)
    died = DIED.search(error)
    if NO_SHARED_MEMORY.search(error):
        return _shared_memory(training)
    if NO_FILES.search(error):
        do = "open them once in each worker, or close them"
        says = f"too many files are open: ulimit -n is {noted.get('limit')}"
        for kind, count in noted.get("files", ()):
            says += f", and {count} of the training process are {kind}"
            if kind == SHARED_MEMORY:
                do = (
                    "each tensor that a worker sent has one as long as it is kept: clone() what "
                    "you keep, or call torch.multiprocessing.set_sharing_strategy('file_system')"
                )
        return f"{says}; {do}"
    if "unpicklable" in noted:
        return (
            "workers that are not forked are sent the dataset, pickled, and "
            f"{noted['unpicklable'] or 'something of it'} cannot be: define functions at the top "
            "of a module, and make locks, files and connections in the worker, on first use, or "
            "leave them out in __getstate__"
        )
    if NO_MEMORY.search(error):
        return f"memory ran out{_memory(training)}"
    if died is None:
        return ""
    if died[2].startswith("Killed"):
        return (
            f"worker process {died[1]} was killed by SIGKILL, as the kernel does where memory runs "
            f"out{_memory(training)}"
        )
    return (
        f"worker process {died[1]} died in compiled code ({died[2].strip()}): PYTHONFAULTHANDLER=1 "
        "before the command prints in which line of the program"
    )


def _shared_memory(run: Run | None) -> str:
    """What there is, what a batch takes, and what to do."""
    known = ["what workers send lies there"]
    with suppress(OSError):
        known.append(f"it holds {size(shutil.disk_usage(SHM).total)}")
    ahead = run.loader.prefetch_depth if run else None
    if run and ahead and (batch_bytes := mean_known(run.steps.nbytes)):
        known.append(
            f"a batch takes {size(batch_bytes)}, and {counted(ahead, 'batch', 'batches')} loaded "
            f"ahead {size(ahead * batch_bytes)}"
        )
    return (
        f"{SHM} is full: {', '.join(known)}. Make it larger (docker run --shm-size=8g, or "
        "--ipc=host), or take fewer workers, a smaller prefetch_factor or smaller batches"
    )


def _memory(run: Run | None) -> str:
    """What is known of the memory at the end, and what to do."""
    known, limit = [""], memory_limit()
    events = amounts_in(content_of(limit[1] / "memory.events")) if limit else {}
    if kills := events.get("oom_kill", 0):
        known.append(f"it has done so {counted(kills, 'time')} in this container")
    for subject, name, words in (
        ("machine", "memory_available_bytes", "{} were left when it was last read"),
        ("workers", "pss_bytes", "the workers held {}"),
    ):
        values = host_values(run, subject, name) if run else ()
        known += [words.format(size(float(each))) for each in values[-1:]]
    do = "take fewer workers, a smaller prefetch_factor or smaller batches, or keep less"
    return f"{', '.join(known)}; {do}"

"""Why an error of its loader ended a program: one line beside its own traceback."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.data.columns import Columns, mean_known
from loadeval.data.environment import SHM
from loadeval.data.run import Run
from loadeval.launch.ended import NO_FILES, SHARED_MEMORY
from loadeval.launch.loadeval_inject import ERROR_MARK
from loadeval.probes.limits import memory_limit
from loadeval.probes.processes import amounts_in, content_of
from loadeval.words import counted, size

DIED = re.compile(r"DataLoader worker \(pid\(?s?\)? *([\d, ]+)\) is killed by signal: ([\w ]+)")
NO_SHARED_MEMORY = re.compile(
    r"by signal: Bus error|(/torch_|shared memory|shm_open).*No space left"
)
NO_MEMORY = re.compile(r"can't allocate memory|Cannot allocate memory|\b(_Array)?MemoryError\b")


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
        return _too_many_files(noted)
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


def _too_many_files(noted: dict[str, Any]) -> str:
    """What the limit is, what is open most, and what to do."""
    do = "open them once in each worker, or close them"
    says = f"too many files are open: ulimit -n is {noted.get('limit')}"
    for kind, count in noted.get("files", ()):
        says += f", and {count} of the training process are {kind}"
        if kind == SHARED_MEMORY:
            do = (
                "each tensor that a worker sent has one as long as it is kept: clone() what you "
                "keep, or call torch.multiprocessing.set_sharing_strategy('file_system')"
            )
    return f"{says}; {do}"


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
        read = (run.readings if run else {}).get(("host", subject), Columns({}))
        values = read.get(name, np.empty(0))
        known += [words.format(size(float(each))) for each in values[~np.isnan(values)][-1:]]
    do = "take fewer workers, a smaller prefetch_factor or smaller batches, or keep less"
    return f"{', '.join(known)}; {do}"

"""`loadeval doctor`, on machines that are given."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import LoaderInfo, Run
from loadeval.cli import doctor as command
from loadeval.data.columns import Columns
from loadeval.data.lines import EpochEnd, WorkerStart
from loadeval.data.run import STAGES
from loadeval.doctor import checkup
from loadeval.probes.gpu import Driver
from loadeval.probes.machine import WITHOUT_LIMIT, Machine
from tests.cli.commands import COMMAND, in_a_terminal, runner
from tests.recordings import laid_out
from tests.runs.given import make_header
from tests.runs.tables import steps_table

if TYPE_CHECKING:
    from pathlib import Path

MB, GB = 10**6, 10**9
H100 = Driver("550.54.15", (12, 4), ("NVIDIA H100",) * 2, (True, True))
NONE = Driver(missing="no NVIDIA driver found")
FINE = Machine(
    cpus=64,
    cpus_usable=64,
    quota_cores=None,
    threads=None,
    threads_from=None,
    shm_bytes=64 * GB,
    shm_free_bytes=60 * GB,
    open_files=65_536,
    open_files_at_most=65_536,
    start_method="fork",
    memory_bytes=256 * GB,
    memory_available_bytes=200 * GB,
    driver=H100,
    packages={"nvidia-ml-py": "13.0", "nvidia-dali-cuda120": "1.51.2"},
)
CONTAINER = replace(
    FINE,
    quota_cores=2.5,
    shm_bytes=64 * MB,
    shm_free_bytes=64 * MB,
    open_files=64,
    start_method="spawn",
    driver=Driver(missing="the driver's parts differ", broken=True),
    packages={"nvidia-ml-py": "13.0"},
)
UNKNOWN = replace(
    FINE,
    cpus=None,
    cpus_usable=1,
    shm_bytes=None,
    shm_free_bytes=None,
    open_files=None,
    start_method="new",
    memory_bytes=None,
    memory_available_bytes=None,
    driver=NONE,
    packages={},
)

run = runner("doctor")


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the command find a machine."""
    return lambda machine: monkeypatch.setattr(command, "read_machine", lambda: machine)


IN_ORDER = """\
ok            CPUs           64 of 64 usable
ok            threads        torch uses up to 64 threads in the training process (one per CPU); in \
each worker torch uses 1, other libraries up to 64
ok            workers        up to 64, one per CPU; give a run to check its own
ok            shared memory  60.0 GB free of 64.0 GB; 129 batches of 32.0 MB (64 workers x 2 \
prefetched, and the one in the step) need 4.13 GB
ok            open files     65,536 at most
ok            start method   fork: workers share the training process's memory until either writes \
to it
ok            NVIDIA driver  550.54.15, CUDA up to 12.4: 2 x NVIDIA H100
ok            NVML           nvidia-ml-py 13.0
ok            GPM            the GPU's performance counters can be read
ok            DALI           nvidia-dali-cuda120 1.51.2
"""
TO_CHANGE = """\
ok            CPUs           64 of 64 usable, 2.5 of them at a time (cgroup quota)
change        threads        torch uses up to 64 threads in the training process (one per CPU), \
but only 2.5 can run at a time: set OMP_NUM_THREADS=2
ok            workers        up to 2, one per CPU; give a run to check its own
change        shared memory  64.0 MB free of 64.0 MB; 5 batches of 32.0 MB (2 workers x 2 \
prefetched, and the one in the step) need 160 MB: make it larger (--shm-size in Docker, an \
emptyDir of medium Memory in Kubernetes), or use fewer workers, less prefetch or smaller batches
change        open files     64 at most, but 5 batches of 8 tensors (2 workers x 2 prefetched, and \
the one in the step) may need 168: run ulimit -n 336 (up to 65,536 allowed), or \
torch.multiprocessing.set_sharing_strategy('file_system')
ok            start method   spawn: workers import and unpickle again: persistent_workers=True \
starts them once
change        NVIDIA driver  the driver's parts differ: restart the machine, or load the driver anew
not measured  NVML           nvidia-ml-py 13.0, but no driver answers
not measured  GPM            the driver's parts differ
ok            DALI           not installed: only DALI pipelines need it
"""
NOT_KNOWN = """\
ok            CPUs           1 of 1 usable
ok            threads        torch uses up to 1 thread in the training process (one per CPU)
ok            workers        up to 1, one per CPU; give a run to check its own
not measured  shared memory  none
not measured  open files     the system does not report its limit
ok            start method   new: its cost is not known
not measured  NVIDIA driver  no NVIDIA driver found
not measured  NVML           nvidia-ml-py of unknown version, but no driver answers
not measured  GPM            no NVIDIA driver found
ok            DALI           not installed: only DALI pipelines need it
"""


@pytest.mark.parametrize(
    ("machine", "code", "printed"),
    [(FINE, 0, IN_ORDER), (CONTAINER, 1, TO_CHANGE), (UNKNOWN, 0, NOT_KNOWN)],
)
def test_what_is_printed(on: Any, machine: Machine, code: int, printed: str) -> None:
    """A line for each check, what to do behind a colon, and exit code 1 where something is."""
    on(machine)
    assert run() == (code, printed, "")


def line(name: str, facts: dict[str, Any], loaded: Run | None = None) -> str:
    """What is said of one thing on a machine that is FINE but for some facts."""
    (check,) = (each for each in checkup(replace(FINE, **facts), loaded) if each.name == name)
    return f"{check.status}: {check.says}{'' if check.do is None else f': {check.do}'}"


@pytest.mark.parametrize(
    ("name", "facts", "text"),
    [
        (
            "CPUs",
            {"cpus_usable": 1},
            (
                "change: only 1 of 64 usable: ask for more, with --cpus-per-task in Slurm, --cpus "
                "in Docker, or the CPU limit of the pod"
            ),
        ),
        (
            "threads",
            {"threads": 1, "threads_from": "OMP_NUM_THREADS"},
            "ok: torch uses up to 1 thread in the training process (OMP_NUM_THREADS=1)",
        ),
        ("workers", {"quota_cores": 0.5}, "ok: up to 1, one per CPU; give a run to check its own"),
        ("open files", {"open_files": WITHOUT_LIMIT}, "ok: no limit"),
        ("open files", {"open_files": 1160}, "ok: 1,160 at most"),
        (
            "open files",
            {"open_files": 1159, "open_files_at_most": WITHOUT_LIMIT},
            (
                "change: 1,159 at most, but 129 batches of 8 tensors (64 workers x 2 prefetched, "
                "and the one in the step) may need 1,160: run ulimit -n 2320, or "
                "torch.multiprocessing.set_sharing_strategy('file_system')"
            ),
        ),
        (
            "start method",
            {"start_method": "forkserver"},
            (
                "ok: forkserver: workers unpickle the dataset again: persistent_workers=True "
                "starts them once"
            ),
        ),
        ("NVIDIA driver", {"driver": Driver("550.1")}, "ok: 550.1: no GPU"),
        ("GPM", {"driver": Driver("550.1")}, "not measured: no GPU"),
        (
            "GPM",
            {"driver": replace(H100, gpm=(True, False))},
            "ok: not on every GPU (Hopper or newer have it): utilisation is coarser there",
        ),
        (
            "GPM",
            {"driver": replace(H100, gpm=(True, None))},
            "not measured: the driver does not say whether it supports GPM",
        ),
        (
            "DALI",
            {"packages": {"nvidia-dali-cuda130": "2.4.0"}},
            (
                "change: nvidia-dali-cuda130 2.4.0 is built for CUDA 13, but the driver runs CUDA "
                "up to 12.4: install nvidia-dali-cuda120, or a newer driver"
            ),
        ),
        (
            "DALI",
            {"packages": {"nvidia-dali-cuda130": "2.4.0"}, "driver": NONE},
            "ok: nvidia-dali-cuda130 2.4.0",
        ),
    ],
)
def test_a_machine_that_is_fine_but_for_some_facts(
    name: str, facts: dict[str, Any], text: str
) -> None:
    assert line(name, facts) == text


def made(
    *,
    kept: int = 0,
    anew: bool = False,
    process: float = 10 * GB,
    worker: float = 2 * GB,
    workers: int | None = 8,
    start_method: str | None = "fork",
    **stages: int,
) -> Run:
    """A run of 1,000 batches of half a GB, each of which takes 0.1 s: one epoch.

    Training and each worker take so many bytes, NaN for those that are not known; a worker keeps
    `kept` more of each batch that it loads, and is started `anew` in a second epoch.
    """
    number, none = np.arange(1000), np.zeros(1000, dtype=int)
    of_stages = dict.fromkeys(STAGES, none - 1) | {"epoch": none, "batch": number}
    if workers:
        own = number // workers
        memory = {"private_bytes": kept * own, "shared_bytes": none}
        of_stages |= {"worker": number % workers, **memory}
    count = workers or 0
    of_stages |= {name: none + value for name, value in stages.items()}
    read = {"process": {"anonymous_bytes": process}}
    read["workers"] = {"pss_bytes": worker * count, "alive_workers": count}
    steps = steps_table(
        epoch=none,
        arm=none,
        request_ns=number * 10**8,
        wait_ns=none,
        step_ns=none + 10**8,
        nbytes=none + GB // 2,
    )
    return Run(
        make_header(
            loader=LoaderInfo(
                "a.Loader",
                workers=workers,
                prefetch_depth=2 * count or None,
                start_method=start_method,
            )
        ),
        steps,
        ends=(EpochEnd(0, "exhausted", 10**11, 0),),
        readings={
            ("host", subject): Columns(
                {"time_ns": [0], **{name: [float(value)] for name, value in values.items()}}
            )
            for subject, values in read.items()
        },
        stages=Columns(of_stages),
        worker_starts=tuple(
            WorkerStart(epoch, each, 0, 1, 2, 0)
            for epoch in ((0, 1) if anew else (0,))
            for each in range(count)
        ),
    )


ROOM = {"memory_available_bytes": 36 * GB}
TAKEN = (
    "36.0 GB available of 256 GB; training with 10.0 GB, 8 workers with 2.00 GB each and 17 "
    "batches of 500 MB need 34.5 GB"
)
KEPT = (
    f"change: {TAKEN}, and workers keep {{}} more of each batch: after {{}} memory is full and the "
    "kernel kills a process: bound what they keep, such as caches"
)


@pytest.mark.parametrize(
    ("name", "facts", "loaded", "text"),
    [
        (
            "workers",
            {"cpus_usable": 8, "quota_cores": 4.5},
            made(),
            "change: 8 on 4.5 CPUs compete with each other and with training: use 4 or fewer",
        ),
        ("workers", {"cpus_usable": 9}, made(), "ok: 8 on 9 CPUs"),
        (
            "threads",
            {"cpus_usable": 12, "driver": NONE},
            made(),
            (
                "change: torch uses up to 12 threads in the training process (one per CPU), and 8 "
                "workers one each, on 12 CPUs without a GPU: set OMP_NUM_THREADS=4"
            ),
        ),
        (
            "threads",
            {"cpus_usable": 12},
            made(),
            (
                "ok: torch uses up to 12 threads in the training process (one per CPU); in each "
                "worker torch uses 1, other libraries up to 12"
            ),
        ),
        (
            "shared memory",
            {"shm_free_bytes": 9 * GB},
            made(),
            (
                "ok: 9.00 GB free of 64.0 GB; 17 batches of 500 MB (8 workers x 2 prefetched, and "
                "the one in the step) need 8.50 GB"
            ),
        ),
        (
            "shared memory",
            {"shm_free_bytes": 0},
            made(workers=0),
            "ok: 0 bytes free of 64.0 GB; not used without workers",
        ),
        (
            "shared memory",
            {"shm_free_bytes": 0},
            made(start_method=None),
            "ok: 0 bytes free of 64.0 GB; not used: workers are threads",
        ),
        (
            "shared memory",
            {"shm_free_bytes": 65 * GB, "shm_bytes": 65 * GB},
            made(workers=None, start_method=None),
            (
                "ok: 65.0 GB free of 65.0 GB; 129 batches of 500 MB (64 workers x 2 prefetched, "
                "and the one in the step) need 64.5 GB"
            ),
        ),
        (
            "shared memory",
            {"shm_free_bytes": 0},
            made(pickled_bytes=GB // 4),
            "ok: 0 bytes free of 64.0 GB; not used: batches are pickled through a pipe",
        ),
        ("open files", {"open_files": 196}, made(tensors=4), "ok: 196 at most"),
        (
            "open files",
            {"open_files": 195},
            made(tensors=4),
            (
                "change: 195 at most, but 17 batches of 4 tensors (8 workers x 2 prefetched, and "
                "the one in the step) may need 196: run ulimit -n 392 (up to 65,536 allowed), or "
                "torch.multiprocessing.set_sharing_strategy('file_system')"
            ),
        ),
        ("open files", {"open_files": 128}, made(pickled_bytes=GB), "ok: 128 at most"),
        ("open files", {"open_files": 128}, made(workers=0), "ok: 128 at most"),
        ("memory", ROOM, made(), f"ok: {TAKEN}"),
        (
            "memory",
            {"memory_available_bytes": 34 * GB},
            made(),
            (
                f"change: {TAKEN.replace('36.0', '34.0')}, and the kernel will kill a process: use "
                "fewer workers, less prefetch or smaller batches, or ask for more memory"
            ),
        ),
        (
            "memory",
            ROOM,
            made(kept=MB),
            KEPT.format("1.00 MB", "1,500 batches (1.5 epochs, 150 s)"),
        ),
        ("memory", ROOM, made(kept=MB, anew=True), f"ok: {TAKEN}"),
        (
            "memory",
            ROOM,
            made(kept=2 * MB, anew=True),
            KEPT.format("2.00 MB", "750 batches (0.8 epochs, 75.0 s)"),
        ),
        ("memory", ROOM, made(kept=10), f"ok: {TAKEN}"),
        (
            "memory",
            {**ROOM, "memory_bytes": None},
            made(workers=0),
            (
                "ok: 36.0 GB available of 36.0 GB; training with 10.0 GB, and 1 batch of 500 MB "
                "need 10.5 GB"
            ),
        ),
        (
            "memory",
            ROOM,
            made(start_method=None, worker=np.nan),
            (
                "ok: 36.0 GB available of 256 GB; training with 10.0 GB, and 1 batch of 500 MB "
                "need 10.5 GB"
            ),
        ),
        (
            "memory",
            ROOM,
            made(worker=np.nan),
            (
                "not measured: the run has no readings of the memory of training and its workers: "
                "record one with system metrics"
            ),
        ),
        (
            "memory",
            {"memory_available_bytes": None},
            made(),
            "not measured: the system does not report its memory",
        ),
    ],
)
def test_a_machine_for_the_loader_of_a_run(
    name: str, facts: dict[str, Any], loaded: Run, text: str
) -> None:
    """What its batches, training and workers take, and what they keep: until memory is full.

    That is no matter where workers start anew before, or it takes over 100 hours.
    """
    assert line(name, facts, loaded) == text


def test_a_recorded_run_is_judged_for_this_machine(on: Any, tmp_path: Path) -> None:
    """Memory comes behind the other checks."""
    on(FINE)
    (log,) = laid_out("worker-memory", tmp_path)
    code, out, err = run(tmp_path / log)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == (
        "ok            memory         200 GB available of 256 GB; training with 218 MB, 1 worker "
        "with 148 MB each and 3 batches of 8 bytes need 366 MB"
    )


def test_a_run_that_cannot_be_read(tmp_path: Path) -> None:
    code, out, err = run(tmp_path / "missing.jsonl")
    assert (code, out) == (1, "")
    assert "missing.jsonl" in err


def test_json(on: Any) -> None:
    """The checks, whether all is in order, and the machine."""
    on(CONTAINER)
    code, out, err = run("--json")
    told = json.loads(out)
    assert (code, err, told["ok"]) == (1, "", False)
    assert told["checks"][:2] == [
        {
            "name": "CPUs",
            "status": "ok",
            "says": "64 of 64 usable, 2.5 of them at a time (cgroup quota)",
            "do": None,
        },
        {
            "name": "threads",
            "status": "change",
            "says": "torch uses up to 64 threads in the training process (one per CPU), but only "
            "2.5 can run at a time",
            "do": "set OMP_NUM_THREADS=2",
        },
    ]
    assert (told["machine"]["cpus"], told["machine"]["driver"]["gpus"]) == (64, [])


def test_a_name_cannot_steer_the_terminal(on: Any) -> None:
    """Escape sequences of a driver are text."""
    on(replace(FINE, driver=Driver("\x1b[2J")))
    assert r"\x1b[2J" in run()[1]


def test_the_installed_command() -> None:
    """It prints a plain line for each check into a pipe, whatever is wrong with this machine."""
    done = subprocess.run([COMMAND, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 10
    assert "\x1b" not in done.stdout


def test_a_terminal() -> None:
    """The output is as wide as the terminal, with the status in colour."""
    shown = in_a_terminal("doctor", columns=70)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 70
    assert "\x1b[32m" in shown

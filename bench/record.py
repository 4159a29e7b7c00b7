"""Record runs of planted programs into tests/recorded, one pass on two CPUs.

All take some ten minutes, each in a process of its own; while others use the CPUs it waits. With
--table only README.md is written anew, by what is found in the logs that are there.
"""

import argparse
import gzip
import math
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import torch

from bench.judge import JudgeError, launched, printed
from bench.tables import parser_of
from bench.zoo import outside
from bench.zoo.catalogue import PROGRAMS
from bench.zoo.programs import Training
from loadeval.probes import host
from tests.recorded import FOLDER, TABLE, found_in, rows_of

CPUS = 2
MOST_BYTES = 80_000
QUIET_PERCENT = 5.0
"""Of the CPUs others may use so much before a run is recorded."""

Record = Callable[[Path, Path], None]
"""`record(folder, path)` writes logs, the only one to `path`; programs keep files in the folder."""


def measured(make: Callable[[Path], Training], folder: Path, path: Path, **options: Any) -> None:
    make(folder).logged(path, name=path.stem, redact=True, **options)


def planted(program: str, variant: str = "faulty", **options: Any) -> tuple[str, Record]:
    """A program of the catalogue."""
    title = program if variant == "faulty" else f"{program}: {variant}"
    return title, partial(measured, partial(PROGRAMS[program].training, variant), **options)


def seen(program: str, **options: Any) -> tuple[str, Record]:
    """A program of which nobody looks into the loader."""
    row = outside.SEEN[program]
    if row.mode == "alternate":
        options["stages"] = False
    return program, partial(measured, lambda _: row.make(), mode=row.mode, **options)


def on_device(program: str, make: str, mode: str, **arguments: Any) -> tuple[str, Record]:
    """A program on a GPU: where there is none, what was recorded stays."""

    def record(folder: Path, path: Path) -> None:
        from bench.zoo import device

        # Read often, for blocks of a fraction of a second.
        options = {"probes": ("gpu", "host"), "probe_interval_s": 0.05}
        measured(lambda _: getattr(device, make)(**arguments), folder, path, mode=mode, **options)

    return program, record


def log_and_replay(make: Callable[[], Training], folder: Path, path: Path) -> None:
    """Two runs of the same training."""
    for mode in ("log", "replay"):
        measured(lambda _: make(), folder, path.with_name(f"{mode}.jsonl"), mode=mode)


def growing(make: Callable[[int], Training], folder: Path, path: Path) -> None:
    """Memory is read often, though it is costly, so that seconds show what hours do."""
    host.MOST_SHARE = math.inf
    probes = [host.HostProbe(memory_every_s=0)]
    options: dict[str, Any] = {"probes": probes, "probe_interval_s": 0.005}
    measured(lambda _: make(250), folder, path, mode="log", **options)


def run(*program: str, mode: str = "log") -> Record:
    """Leaves the logs of `loadeval run` in the folder of `path`."""

    def record(folder: Path, path: Path) -> None:
        launched(folder / "logs", program, "--redact", "--mode", mode)
        for file in (folder / "logs").iterdir():
            file.rename(path.with_name(file.name))

    return record


WHOLE = ("-m", "bench.zoo.whole")
RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", *WHOLE, "ranks")
RECORDINGS: dict[str, tuple[str, Record]] = {
    "zero-workers": planted("no workers"),
    "zero-workers-healthy": planted("no workers", "healthy"),
    "slow-transform": planted("a blur in a list of transforms"),
    "slow-transform-healthy": planted("a blur in a list of transforms", "healthy"),
    "slow-fetch": planted("big JPEGs"),
    "slow-fetch-healthy": planted("big JPEGs", "healthy"),
    "storage-latency": planted("downloads one at a time"),
    "storage-latency-healthy": planted("downloads one at a time", "healthy"),
    "worker-start": planted("a vocabulary loaded by each worker"),
    "worker-start-healthy": planted("a vocabulary loaded by each worker", "healthy"),
    "data-format": planted("archives that are unpacked for each sample"),
    "tokenising": planted("texts that are tokenised in each epoch"),
    "padding": planted("texts of all lengths in a batch"),
    "slow-collate": planted("padding word by word"),
    "transfer": planted("NumPy arrays through the pipe"),
    "slow-sampler": planted("weighted draws one by one"),
    "head-of-line": planted("one long recording in 75"),
    "slow-samples": planted("four huge documents in regular places"),
    "shallow-queue": planted("jitter, and a queue of one batch"),
    "lock": planted("a lock of a file"),
    "disk": planted("files that the page cache forgot"),
    "few-shards": planted("one shard for four workers"),
    "uneven-shards": planted("one large shard among small ones"),
    "slow-worker": planted("a shard that is packed harder"),
    "confined": planted("all workers bound to one CPU"),
    "oversubscription": planted("six workers for each CPU"),
    "copied-pages": planted("texts that are strings in a forked worker", mode="log", stages=True),
    "python-lock": planted("threads that tokenise for a queue"),
    "shuffle-buffer": planted("a shuffle buffer as large as an epoch"),
    "sampler-start": planted("a permutation of four million samples for a thousand"),
    "recreated": planted("an iterator for each batch"),
    "one-server": planted("a Manager for all workers"),
    "thrown-away": planted("a stream that every worker makes whole"),
    "spawned": planted("spawn, and a long list of files"),
    "slow-operator": planted("a stage of SPDL that decodes one at a time"),
    "contention": seen("a lock that steps need too"),
    "generator": seen("a generator"),
    "waiting": seen("a worker that is too slow"),
    "log-zero-workers": seen("no workers, in a log"),
    "shared-machine": seen("a process that computes", probe_interval_s=0.05),
    "log-stalls": seen("200 ms for one batch in a hundred"),
    "epoch-boundaries": seen("workers that begin in 200 ms, each epoch"),
    "slow-first-batch": seen("a worker that begins in 1.5 s"),
    "drift": seen("the second half comes from a cache"),
    "outliers": seen("one step saves a checkpoint"),
    "process-memory": ("outputs are kept", partial(growing, outside.keeping_outputs)),
    "worker-memory": ("samples are kept", partial(growing, outside.keeping_samples)),
    "open-files": ("files that stay open", partial(growing, outside.opening)),
    "served-twice": (
        "a stream that no worker divides",
        partial(measured, lambda _: outside.read_by_workers(outside.Undivided)),
    ),
    "log-and-replay": (
        "one worker at 10 ms for a step of 5",
        partial(log_and_replay, lambda: outside.slow(150, 10, 5, num_workers=1)),
    ),
    "not-representative": (
        "a step that takes longer from batch to batch",
        partial(log_and_replay, lambda: outside.slow(80, 0, lambda number: 0.1 * number)),
    ),
    "ranks": ("three ranks, rank 1 slower", run(*RANKS)),
    "ranks-alternate": ("the same in alternate mode", run(*RANKS, mode="alternate")),
    "validation": (
        "training and validation under `loadeval run`",
        run(*WHOLE, "validating", "quick", mode="alternate"),
    ),
    "slow-validation": (
        "a validation without workers",
        run(*WHOLE, "validating", "slow", mode="alternate"),
    ),
    "passed-over": (
        "a resumed run, which loads what it skips",
        run(*WHOLE, "resuming", "", mode="alternate"),
    ),
    "unpinned-memory": on_device("batches not pinned", "unpinned", "log", mb=2, pinned=False),
    "hidden-waits": on_device("waits behind queued work", "hidden_waits", "log", work_ms=12.0),
    "idle-gpu": on_device("tiny kernels", "idle_device", "alternate", is_idle=True),
    "pinning": on_device("batches that pin slowly", "slow_pinning", "alternate", ms=15.0),
}


def record(name: str) -> None:
    """Record it in a process of its own once nobody uses the CPUs, and keep what it wrote."""
    while psutil.cpu_percent(1.0) > QUIET_PERCENT:
        pass
    with TemporaryDirectory() as place:
        try:
            printed(sys.executable, "-m", "bench.record", "--only", name, "--into", place)
        except JudgeError as error:
            print(f"{name}: {error}", flush=True)
        else:
            keep(name, sorted(Path(place).glob("*.jsonl")))


def keep(name: str, logs: list[Path]) -> None:
    """Pack logs into tests/recorded: a single one by itself, several in a folder."""
    for log in logs:
        place = FOLDER / f"{name}.jsonl.gz" if len(logs) == 1 else FOLDER / name / f"{log.name}.gz"
        place.parent.mkdir(exist_ok=True)
        text = re.sub(r'"platform":"[^"]*"', '"platform":"Linux"', log.read_text())
        place.write_bytes(gzip.compress(text.encode(), mtime=0))
        size = place.stat().st_size
        too_large = " TOO LARGE" * (size > MOST_BYTES)
        print(f"{place.relative_to(FOLDER)}: {size:,} bytes{too_large}", flush=True)


def write_table() -> None:
    """Write what is found in each recording into README.md."""
    text = TABLE.read_text()
    programs = {name: program for name, (program, _) in rows_of(text).items()}
    programs |= {name: program for name, (program, _) in RECORDINGS.items()}
    rows = []
    for name in sorted(programs):
        with TemporaryDirectory() as folder:
            rows.append(f"| `{name}` | {programs[name]} | {found_in(name, Path(folder))} |\n")
    head, line, rest = text.partition("|---|---|---|\n")
    TABLE.write_text(head + line + "".join(rows) + rest[rest.find("\n\n") + 1 :])


def main() -> None:
    parser = parser_of(__doc__, RECORDINGS)
    parser.add_argument("--table", action="store_true", help="write README.md alone")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.into is not None:
        torch.set_num_threads(1)
        (name,) = options.only
        files = options.into / "files"
        files.mkdir()
        _, write = RECORDINGS[name]
        write(files, options.into / f"{name}.jsonl")
        return
    if not options.table:
        os.environ["OMP_NUM_THREADS"] = "1"
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])
        for name in options.only or RECORDINGS:
            record(name)
    write_table()


if __name__ == "__main__":
    main()

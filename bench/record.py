"""Record runs of planted programs into tests/recorded, one pass on two CPUs.

    python -m bench.record [NAME...] [--table]

Without names all are recorded, some ten minutes, each in a process of its own; while others use the
CPUs it waits.
With --table only README.md is written anew, by what is found in the logs that are there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
import torch

from bench.zoo import outside
from bench.zoo.catalogue import PROGRAMS
from loadeval import LoaderEvaluator
from loadeval.probes import host
from tests.recorded import FOLDER, TABLE, found_in, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.zoo.programs import Training

ROOT = Path(__file__).parents[1]
CPUS = 2
MOST_BYTES = 80_000
QUIET_CPUS = 0.1
"""What others may use while a run is recorded; else it is recorded once more."""
KNOWN = {program.name: program for program in PROGRAMS}
LOADEVAL = ("-c", "from loadeval.cli.main import app; app(prog_name='loadeval')")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")


@dataclass(frozen=True)
class Recording:
    """One entry of tests/recorded: `record(folder, path)` writes logs, the only one to `path`.

    `program` is what the table calls it; programs may keep their files in the folder.
    """

    name: str
    program: str
    record: Callable[[Path, Path], None]


def measured(make: Callable[[Path], Training], folder: Path, path: Path, **options: Any) -> None:
    """Write the log of one run of a training, in alternate mode unless `options` say otherwise."""
    options = {"mode": "alternate", "name": path.stem, "redact": True, **options}
    training = make(folder)
    with LoaderEvaluator(training.loader, log_file=path, **options) as loader:
        training.run(loader)
    training.close()


def planted(name: str, program: str, variant: str = "faulty", **options: Any) -> Recording:
    """A program of the catalogue."""
    row = KNOWN[program]
    if not row.looks_inside:
        options["stages"] = False
    title = program if variant == "faulty" else f"{program}: {variant}"
    return Recording(name, title, partial(measured, getattr(row, variant), **options))


def seen(name: str, program: str, **options: Any) -> Recording:
    """A program of which nobody looks into the loader."""
    row = next(row for row in outside.SEEN if row.name == program)
    if row.mode == "alternate":
        options["stages"] = False
    record = partial(measured, lambda _: row.make(), mode=row.mode, **options)
    return Recording(name, program, record)


def on_device(name: str, program: str, make: str, mode: str, **arguments: Any) -> Recording:
    """A program on a GPU: where there is none, what was recorded stays."""

    def record(folder: Path, path: Path) -> None:
        from bench.zoo import device

        made = partial(getattr(device, make), **arguments)
        # Read often, for blocks of a fraction of a second.
        options = {"probes": ("gpu", "host"), "probe_interval_s": 0.05}
        measured(lambda _: made(), folder, path, mode=mode, **options)

    return Recording(name, program, record)


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


def killed(folder: Path, path: Path) -> None:
    """The process is killed within the second epoch, while a line is written."""

    def step_ms(number: int) -> float:
        if number == 150:
            os.kill(os.getpid(), signal.SIGKILL)
        return 5

    if not os.fork():
        measured(
            lambda _: outside.slow(100, 10, step_ms, 2, num_workers=1), folder, path, mode="log"
        )
    os.wait()
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b"\n", 0, -1) + 40])


def damaged(folder: Path, path: Path, spoil: Callable[[dict[str, Any]], Any]) -> None:
    """The last block of a log run became something else."""
    measured(lambda _: outside.slow(100, 10, 5, 2, num_workers=1), folder, path, mode="log")
    lines = path.read_text().splitlines()
    place = max(n for n, line in enumerate(lines) if '"type":"block"' in line)
    spoilt = spoil(json.loads(lines[place]))
    lines[place] = spoilt if isinstance(spoilt, str) else json.dumps(spoilt, separators=(",", ":"))
    path.write_text("".join(f"{line}\n" for line in lines))


def cut_through(block: dict[str, Any]) -> str:
    return json.dumps(block)[:60] + "\x00\x00"


def with_float(block: dict[str, Any]) -> dict[str, Any]:
    return block | {"wait_ns": [0.5, *block["wait_ns"][1:]]}


def jumped_back(block: dict[str, Any]) -> dict[str, Any]:
    return block | {"request_ns": [1, *block["request_ns"][1:]]}


def launched(path: Path, command: list[str], *options: str) -> None:
    """Leave the logs of `loadeval run` in the folder of `path`."""
    logs = path.parent / "logs"
    before = (sys.executable, *LOADEVAL, "run", "--redact", "--output", str(logs), *options, "--")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}"}
    subprocess.run([*before, *command], check=True, env=environment, cwd=path.parent)
    for file in logs.iterdir():
        file.rename(path.with_name(file.name))


def with_validation(_folder: Path, path: Path) -> None:
    program = [sys.executable, "-m", "bench.zoo.validating"]
    launched(path, program, "--mode", "alternate")


def of_ranks(_folder: Path, path: Path, *options: str) -> None:
    program = [sys.executable, *TORCHRUN, "--nproc-per-node", "3", "-m", "bench.zoo.ranks"]
    launched(path, program, *options)


RECORDINGS = (
    planted("zero-workers", "no workers"),
    planted("zero-workers-healthy", "no workers", "healthy"),
    planted("slow-transform", "a blur in a list of transforms"),
    planted("slow-transform-healthy", "a blur in a list of transforms", "healthy"),
    planted("slow-fetch", "big JPEGs"),
    planted("slow-fetch-healthy", "big JPEGs", "healthy"),
    planted("storage-latency", "downloads one at a time"),
    planted("storage-latency-healthy", "downloads one at a time", "healthy"),
    planted("worker-start", "a vocabulary loaded by each worker"),
    planted("worker-start-healthy", "a vocabulary loaded by each worker", "healthy"),
    planted("data-format", "archives that are unpacked for each sample"),
    planted("tokenising", "texts that are tokenised in each epoch"),
    planted("padding", "texts of all lengths in a batch"),
    planted("slow-collate", "padding word by word"),
    planted("transfer", "NumPy arrays through the pipe"),
    planted("slow-sampler", "weighted draws one by one"),
    planted("head-of-line", "one long recording in 75"),
    planted("slow-samples", "four huge documents in regular places"),
    planted("shallow-queue", "jitter, and a queue of one batch"),
    planted("stalls", "shards decompressed when they are opened"),
    planted("lock", "a lock of a file"),
    planted("disk", "files that the page cache forgot"),
    planted("few-shards", "one shard for four workers"),
    planted("uneven-shards", "one large shard among small ones"),
    planted("slow-worker", "a shard that is packed harder"),
    planted("confined", "all workers bound to one CPU"),
    planted("oversubscription", "six workers for each CPU"),
    planted("copied-pages", "texts that are strings in a forked worker", mode="log", stages=True),
    planted("python-lock", "threads that tokenise for a queue"),
    planted("shuffle-buffer", "a shuffle buffer as large as an epoch"),
    planted("sampler-start", "a permutation of four million samples for a thousand"),
    planted("recreated", "an iterator for each batch"),
    planted("spawned", "spawn, and a long list of files"),
    planted("slow-operator", "a stage of SPDL that decodes one at a time"),
    Recording(
        "capacity-healthy",
        "two workers at 4 ms for a step of 8",
        partial(measured, lambda _: outside.slow(200, 4, 8, num_workers=2)),
    ),
    seen("capacity", "two workers at 20 ms for a step of 2"),
    seen("per-batch-cost", "batches to unpack"),
    seen("contention", "a lock that steps need too"),
    seen("generator", "a generator"),
    seen("waiting", "a worker that is too slow"),
    seen("log-zero-workers", "no workers, in a log"),
    seen("shared-machine", "a process that computes", probe_interval_s=0.05),
    seen("log-stalls", "200 ms for one batch in a hundred"),
    seen("epoch-boundaries", "workers that begin in 200 ms, each epoch"),
    seen("slow-first-batch", "a worker that begins in 1.5 s"),
    seen("falling-throughput", "each batch takes longer than the one before"),
    seen("drift", "the second half comes from a cache"),
    seen("outliers", "one step saves a checkpoint"),
    Recording("process-memory", "outputs are kept", partial(growing, outside.keeping_outputs)),
    Recording("worker-memory", "samples are kept", partial(growing, outside.keeping_samples)),
    Recording(
        "log-and-replay",
        "one worker at 10 ms for a step of 5",
        partial(log_and_replay, lambda: outside.slow(150, 10, 5, num_workers=1)),
    ),
    Recording(
        "not-representative",
        "a step that takes longer from batch to batch",
        partial(log_and_replay, lambda: outside.slow(80, 0, lambda number: 0.1 * number)),
    ),
    Recording("ranks", "three ranks, rank 1 slower", of_ranks),
    Recording(
        "ranks-alternate",
        "the same in alternate mode",
        lambda folder, path: of_ranks(folder, path, "--mode", "alternate"),
    ),
    Recording("validation", "training and validation under `loadeval run`", with_validation),
    Recording("killed", "killed in its second epoch, its last line cut off", killed),
    Recording("damaged", "a line cut through", partial(damaged, spoil=cut_through)),
    Recording("damaged-float", "a wait of half a nanosecond", partial(damaged, spoil=with_float)),
    Recording("damaged-time", "a time that jumped back", partial(damaged, spoil=jumped_back)),
    on_device("unpinned-memory", "batches not pinned", "unpinned", "log", mb=2, pinned=False),
    on_device("hidden-waits", "waits behind queued work", "hidden_waits", "log", work_ms=12.0),
    on_device("idle-gpu", "tiny kernels", "idle_device", "alternate", is_idle=True),
    on_device("pinning", "batches that pin slowly", "slow_pinning", "alternate", ms=15.0),
)

BEFORE = {
    "before-blur": "two workers that blur, and a step that fills two CPUs",
    "before-dali": "DALI decodes and resizes JPEGs on two threads",
    "before-demo": "`loadeval demo`",
    "before-spdl": "SPDL decodes and resizes JPEGs, two at once",
}
BEFORE |= {
    f"before-{recording.name}": recording.program
    for recording in RECORDINGS
    if (FOLDER / f"before-{recording.name}.jsonl.gz").exists()
}
"""Logs that only older code writes, the last ones that of commit 9edae93."""


def record(recording: Recording) -> bool:
    """Record it in a process of its own, and keep what it wrote; whether nobody disturbed it."""
    with TemporaryDirectory() as name:
        folder, began = Path(name), cpu_times_s()
        command = [sys.executable, "-m", "bench.record", recording.name, "--into", name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        is_quiet = cpus_of_others(began) < QUIET_CPUS or recording.name == "shared-machine"
        logs = sorted(folder.glob("*.jsonl"))
        if done.returncode or not logs:
            print(f"{recording.name}: failed\n{done.stderr}", flush=True)
            return True
        if is_quiet or recording.name not in recorded():
            keep(recording.name, logs)
        return is_quiet


def cpu_times_s() -> tuple[float, float, float]:
    """The time, the CPU time that all have used, and what this process and its children have."""
    every = psutil.cpu_times()
    return time.monotonic(), every.user + every.nice + every.system, sum(os.times()[:4])


def cpus_of_others(since: tuple[float, float, float]) -> float:
    """How many CPUs others have used since then, on average."""
    elapsed_s, all_s, own_s = (now - then for now, then in zip(cpu_times_s(), since, strict=True))
    return (all_s - own_s) / elapsed_s


def wait_until_quiet() -> None:
    """Wait until nobody uses the CPUs."""
    busy = math.inf
    while busy > QUIET_CPUS:
        began = cpu_times_s()
        time.sleep(1)
        busy = cpus_of_others(began)


def recorded() -> set[str]:
    """The names of all recordings that there are."""
    return {
        path.relative_to(FOLDER).parts[0].removesuffix(".jsonl.gz")
        for path in FOLDER.rglob("*.jsonl.gz")
    }


def keep(name: str, logs: list[Path]) -> None:
    """Pack logs into tests/recorded: a single one by itself, several in a folder."""
    for log in logs:
        place = FOLDER / f"{name}.jsonl.gz" if len(logs) == 1 else FOLDER / name / f"{log.name}.gz"
        place.parent.mkdir(exist_ok=True)
        text = re.sub(r'"platform":"[^"]*"', '"platform":"Linux"', log.read_text())
        place.write_bytes(gzip.compress(text.encode(), mtime=0))
        size = place.stat().st_size
        too_large = " TOO LARGE" * (size > MOST_BYTES)
        with TemporaryDirectory() as folder:
            found = found_in(name, Path(folder))
        print(f"{place.relative_to(FOLDER)}: {size:,} bytes{too_large}; {found}", flush=True)


def write_table() -> None:
    """Write what is found in each recording into README.md."""
    text = TABLE.read_text()
    programs = {name: program for name, (program, _) in rows_of(text).items()}
    programs |= {recording.name: recording.program for recording in RECORDINGS}
    programs |= BEFORE
    rows = []
    for name in sorted(recorded()):
        with TemporaryDirectory() as folder:
            rows.append(f"| `{name}` | {programs[name]} | {found_in(name, Path(folder))} |\n")
    head, line, rest = text.partition("|---|---|---|\n")
    TABLE.write_text(head + line + "".join(rows) + rest[rest.find("\n\n") + 1 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--table", action="store_true", help="write README.md alone")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = {recording.name: recording for recording in RECORDINGS}
    if not known.keys() >= set(options.names):
        parser.error(f"expected names among {', '.join(known)}; got {', '.join(options.names)}")
    if options.into is not None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore", UserWarning)
        (name,) = options.names
        files = options.into / "files"
        files.mkdir()
        known[name].record(files, options.into / f"{name}.jsonl")
        return
    if not options.table:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])
        names = list(options.names or known)
        while names:
            wait_until_quiet()
            name = names.pop(0)
            if not record(known[name]):
                names.append(name)
    write_table()


if __name__ == "__main__":
    main()

"""Runs whose every time is given; nothing is served, and no clock runs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.data.columns import UNKNOWN, listed
from loadeval.data.dali import write_metrics
from loadeval.data.lines import (
    Arm,
    Block,
    EpochEnd,
    GpuIdle,
    Header,
    LoaderInfo,
    Prefetch,
    Readings,
    RunEnd,
    Window,
    encode,
)
from loadeval.data.log import RunLog
from loadeval.data.run import ARMS, Run, completed, steps_of
from tests.runs.tables import lines_of, replace, steps_table, tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from loadeval.data.columns import Column
    from loadeval.data.lines import Line

MS = 1_000_000
HEADER = Header(
    run_id="id",
    name="run",
    mode="alternate",
    created="",
    unit="images",
    warmup=1,
    loader=LoaderInfo("loader"),
)
RANDOMISED = replace(
    HEADER,
    name="alternating",
    created="2026-11-21T10:00:00+00:00",
    warmup=5,
    loader=LoaderInfo("a.Loader", workers=2, prefetch_depth=4, batch_size=32),
)


def make_header(**changes: Any) -> Header:
    """A header in which all is known, with `changes`."""
    header = Header(
        run_id="1a2b",
        name="a run",
        mode="log",
        created="2026-01-31T12:00:00+00:00",
        unit="images",
        warmup=1,
        loader=LoaderInfo("torch.utils.data.DataLoader", workers=2, pinned=False),
        settings={"num_cached_batches": 20, "epoch_batches": None},
        environment={"host": "a", "packages": {"numpy": "2.0"}},
    )
    return replace(header, **changes)


def block(
    arm: Arm,
    wait_ns: npt.ArrayLike,
    step_ns: npt.ArrayLike,
    count: int | None = None,
    *,
    request_ns: npt.ArrayLike = UNKNOWN,
    epoch: int = 0,
    pair: int | None = None,
    samples: npt.ArrayLike = UNKNOWN,
    nbytes: npt.ArrayLike = UNKNOWN,
) -> Block:
    """A block of `count` batches: each column has one value for all of them, or one for each.

    One `request_ns` is the first batch's: each other is asked for when the step before it ends.
    """
    given = (request_ns, wait_ns, step_ns, samples, nbytes)
    if count is None:
        count = max(np.size(column) for column in given if np.ndim(column))
    columns = [np.full(count, column, dtype=np.int64) for column in given]
    requests, waits, steps, *_ = columns
    if np.ndim(request_ns) == 0 and request_ns != UNKNOWN:
        requests += np.cumsum(waits + steps) - waits - steps
    gaps = [listed(column) for column in columns[2:]]
    return Block(epoch, arm, requests.tolist(), waits.tolist(), *gaps, pair)


def part(whole: Block, rows: slice, **changes: Any) -> Block:
    """These batches of the block alone, with `changes`."""
    columns = {
        name: None if column is None else column[rows]
        for name in Block.COLUMNS
        for column in [getattr(whole, name)]
    }
    changed: Block = replace(whole, **columns, **changes)
    return changed


def run_of(blocks: Iterable[Block] = (), *, gpu_idle: Iterable[GpuIdle] = (), **known: Any) -> Run:
    """The run of `blocks`, which alternates unless `mode` is given.

    `known` are fields of the run, in which lines may stand for tables, or of its header, which is
    HEADER but for them.
    """
    header = known.pop("header", HEADER)
    of_header = set(Header.__struct_fields__) & known.keys()
    header = replace(header, **{name: known.pop(name) for name in of_header})
    in_order = sorted(blocks, key=lambda block: block.epoch)
    steps = completed(steps_of(in_order), known.get("ends", ()), [*gpu_idle])
    return Run(header, steps, **tables(known))


def make_run(
    waits: Sequence[int],
    steps: Sequence[int] | int = 90,
    *,
    mode: str = "log",
    warmup: int = 0,
    samples: Sequence[int] | int = 4,
    epochs: Sequence[int] | None = None,
    **header: Any,
) -> Run:
    """A `log` or `replay` run with these waits and steps, in nanoseconds.

    `epochs` has the number of batches of each epoch; by default there is one. A step of -1 is
    open, and -1 samples are unknown.
    """
    count = len(waits)
    counts = np.full(count, samples)
    arm: Arm = "ideal" if mode == "replay" else "real"
    whole = block(
        arm,
        waits,
        steps,
        count,
        samples=counts,
        nbytes=np.where(counts == UNKNOWN, UNKNOWN, counts * 3),
    )
    bounds = np.cumsum([0, *([count] if epochs is None else epochs)]).tolist()
    blocks = [
        part(whole, slice(*bound), epoch=epoch) for epoch, bound in enumerate(pairwise(bounds))
    ]
    return run_of(
        blocks,
        name=f"the {arm} run",
        mode=mode,
        warmup=warmup,
        ends=tuple(EpochEnd(each.epoch, "exhausted") for each in blocks),
        closed=True,
        **header,
    )


def alternating(
    *,
    wait: float = 0.0,
    real: float = 50.0,
    ideal: float = 50.0,
    alone: float | None = None,
    noise: float = 0.0,
    uneven: bool = False,
    pairs: int = 10,
    first: float | None = None,
    environment: Mapping[str, Any] | None = None,
    readings: Sequence[Readings] = (),
    **loader: Any,
) -> Run:
    """Pairs of blocks of 8 batches, in turns: a real wait, a real and an ideal step, each in ms.

    `alone` is what a batch takes the loader alone. Where `uneven`, one real batch in four is waited
    for, four times as long. With `first` each pair is an epoch, which begins with that wait.
    """
    blocks, start_ns = [], 0
    for pair in range(pairs):
        step = real + (noise if pair % 2 else -noise)
        for arm, waited, taken in (("real", wait, step), ("ideal", 0.0, ideal)):
            request_ns = start_ns + np.arange(8) * int((waited + taken) * MS)
            waits = np.full(8, waited * MS)
            if uneven:
                waits = np.where(np.arange(8) % 4 == 3, 4 * waits, 0)
            blocks.append(
                block(
                    "real" if arm == "real" else "ideal",
                    waits,
                    taken * MS,
                    request_ns=request_ns,
                    epoch=0 if first is None else pair,
                    pair=pair,
                )
            )
            start_ns = int(request_ns[-1]) + int((4 * waited + taken) * MS)
        if first is not None:
            begin = block("real", first * MS, real * MS, 1, request_ns=start_ns, epoch=pair)
            blocks.insert(-2, begin)
    numbers = range(0 if alone is None else pairs)
    return run_of(
        blocks,
        loader=LoaderInfo(**{"backend": "torch.utils.data.DataLoader", "workers": 2, **loader}),
        environment=environment or {"cpus_usable": 8},
        ends=(EpochEnd(0, "broken off"),),
        prefetches=tuple(
            Prefetch(pair, 0, 8, 8, int(8 * (alone or 0) * MS), None) for pair in numbers
        ),
        readings=tuple(readings),
    )


def randomised(
    *,
    pairs: int = 12,
    iterations_ns: tuple[int, int] = (40 * MS, 25 * MS),
    waits_ns: tuple[int, int] = (10 * MS, 0),
    noise: float = 0.05,
    block: int = 8,
    epoch: int = 60,
    samples: int = 32,
    prefetches: bool = True,
    **header: Any,
) -> Run:
    """An alternating run as the runtime makes it: blocks in random order, with noise, in epochs.

    A warm-up of 5 batches comes before a real block, and of 1 before an ideal one.
    """
    random = np.random.default_rng(0)
    rows: list[tuple[int, int, int, int]] = []
    for pair in range(pairs):
        for code in random.permutation(2).tolist():
            for place in range(-(5, 1)[code], block):
                scale = float(random.normal(1, noise))
                waited_ns = round(waits_ns[code] * scale)
                stepped_ns = round(iterations_ns[code] * scale) - waited_ns
                rows.append((code, pair if place >= 0 else UNKNOWN, waited_ns, stepped_ns))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    arm, counted, wait_ns, step_ns = table.T
    number = np.arange(len(table)) // epoch
    starts = np.arange(len(table)) % epoch == 0
    arm, counted = np.where(starts, 0, arm), np.where(starts, UNKNOWN, counted)
    wait_ns = np.where(starts, 300 * MS, wait_ns)
    request_ns = np.cumsum(wait_ns + step_ns) - wait_ns - step_ns
    sizes = np.full(len(table), samples)
    timed = block - 4
    return Run(
        replace(RANDOMISED, **header),
        steps_table(
            epoch=number,
            arm=arm,
            pair=counted,
            request_ns=request_ns,
            wait_ns=wait_ns,
            step_ns=step_ns,
            samples=sizes,
            nbytes=4 * sizes,
        ),
        ends=tuple(EpochEnd(int(last), "exhausted", 10**18, 0) for last in np.unique(number)),
        prefetches=tuple(
            Prefetch(pair, pair, block, timed, timed * iterations_ns[0], timed * samples)
            for pair in range(pairs if prefetches else 0)
        ),
        windows=tuple(_windows(number, arm, counted, wait_ns + step_ns)),
        closed=True,
    )


def _windows(epoch: Column, arm: Column, pair: Column, iteration_ns: Column) -> Iterator[Window]:
    parts = sorted({part for part in zip(pair, epoch, arm, strict=True) if part[0] != UNKNOWN})
    for pair_number, number, code in parts:
        chosen = (pair == pair_number) & (epoch == number) & (arm == code)
        elapsed_ns = int(iteration_ns[chosen].sum())
        yield Window(int(pair_number), int(number), ARMS[code], elapsed_ns, None)


def level(probe: str, subject: str, name: str, value: npt.ArrayLike) -> Readings:
    """Readings of one quantity, every 10 ms of 20 s; one value for all, or one for each."""
    time_ns = np.arange(2000, dtype=np.int64) * 10 * MS
    return Readings(probe, subject, time_ns, {name: np.full(2000, value, dtype=np.float64)})


def cores_read(run: Run, **subjects: float | tuple[float, float]) -> Run:
    """A run with the CPUs in use, each the same in both arms, or a pair: real and ideal.

    The machine's are those of the others, unless they are given: nobody else is at work.
    """
    pairs = {
        subject: cores if isinstance(cores, tuple) else (cores, cores)
        for subject, cores in subjects.items()
    }
    real, ideal = np.array(list(pairs.values())).T
    pairs.setdefault("machine", (real.sum(), ideal.sum()))
    steps, time_ns = run.steps, np.arange(2000) * 10 * MS
    rows = np.searchsorted(steps.request_ns, time_ns) - 1
    in_ideal = steps.arm[rows.clip(min=0)] == 1
    return replace(
        run,
        readings=tuple(
            level("host", subject, "cpu_cores", np.where(in_ideal, cores[1], cores[0]))
            for subject, cores in pairs.items()
        ),
    )


def with_readings(run: Run) -> Run:
    """A run with readings of two subjects over its whole time, and a GPU that has none."""
    time_ns = np.linspace(0, run.steps.request_ns.max(), 40).astype(np.int64)
    cpu = {"cpu_cores": np.linspace(0.2, 1.8, 40), "disk_read_bytes_per_s": np.full(40, 2e6)}
    none = Readings("gpu", "", np.empty(0, dtype=np.int64), {}, "no NVIDIA driver found")
    workers = Readings("host", "workers", time_ns, {"cpu_cores": np.full(40, 1.5)})
    return replace(run, readings=(Readings("host", "process", time_ns, cpu), workers, none))


def write_run(run: Run, path: Path) -> Path:
    """The run log of `run`, as the recorder would write it."""
    return write_log(path, run.header, *lines_of(run), RunEnd(len(run.steps)))


def save_metrics(run: Run, path: Path) -> None:
    """The metrics file of `run`."""
    lines = run.header, *lines_of(run), RunEnd(len(run.steps))
    write_metrics(run, map(encode, lines), path)


def write_log(path: Path, header: Header, *lines: Line) -> Path:
    """A run log of these lines."""
    log = RunLog(path, header)
    log.append(b"".join(map(encode, lines)))
    log.close()
    return path

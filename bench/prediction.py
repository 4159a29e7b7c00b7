"""Speed-ups by other settings: predicted from one recorded run, and then measured.

Each workload is recorded once, with one or two workers. The speed-ups that are predicted from that
are then measured by plain loops, all settings in turns with the recorded ones. `--tune` compares
`tune` with a grid search instead. Exit status 1 when tune's settings have less than 95% of the
throughput of the grid's best.
"""

import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.judge import backends, predicted
from bench.tables import in_words, parser_of, ratio_of, show
from bench.zoo.programs import Training
from bench.zoo.workloads import Setting, Workload, workloads
from loadeval import Estimate, compare_backends, tune

ROUNDS = 3
SETTLING = 34
"""Batches that are not counted: those of the fullest queue, and some, for workers begin slowly."""
HEADS = ("workload", "what", "from", "to", "predicted", "measured", "ratio", "in range")
TUNE_HEADS = (
    *("workload", "best of the grid", "tune's choice", "tune / grid"),
    *("grid took", "tune took", "reached"),
)
GRID = [
    {"num_workers": 0},
    *(
        {"num_workers": workers, "prefetch_factor": prefetch}
        for workers in (1, 2, 3, 4, 6, 8)
        for prefetch in (2, 4)
    ),
]
TUNED = ("jpeg", "latency", "step")
AS_GOOD = 0.95
"""Throughput with tune's settings over that with the grid's best, at least."""


def batch_s(workload: Workload, options: Mapping[str, Any]) -> float:
    """Seconds per batch of a plain loop, once its queue has filled: of the same batches for all.

    Where workers take long to start, of the whole epoch.
    """
    if workload.context == "spawn":
        began_s = time.perf_counter()
        for batch in workload.loader(**options):
            workload.train(batch)
        return (time.perf_counter() - began_s) / workload.epoch
    began_s = elapsed_s = 0.0
    for number, batch in enumerate(workload.loader(**options)):
        if number == SETTLING:
            began_s = time.perf_counter()
        workload.train(batch)
        elapsed_s = time.perf_counter() - began_s
        if number == SETTLING + workload.counted - 1:
            break
    return elapsed_s / workload.counted


def speedups(
    workload: Workload, settings: Mapping[str, Mapping[str, Any]], over: str
) -> dict[str, Estimate]:
    """The throughput of plain loops over that with the settings `over`: all in turns."""
    took_s: dict[str, list[float]] = {name: [] for name in settings}
    for number in range(ROUNDS):
        for name in random.Random(number).sample(list(settings), len(settings)):
            took_s[name].append(batch_s(workload, settings[name]))
    return {name: ratio_of(took_s[over], others) for name, others in took_s.items()}


def predict(workload: Workload, folder: Path) -> Iterator[list[str]]:
    """A row for what was predicted of each setting, beside what was measured after it."""
    present, log = Setting(workload.workers), folder / f"{workload.name}.jsonl"
    Training(workload.loader(**present.options()), workload.train).logged(log, stages=True)
    settings = [setting for setting in workload.settings if setting != present]
    loaders = {str(setting): setting.options() for setting in (present, *settings)}
    real = speedups(workload, loaders, str(present))
    for setting in settings:
        promised = predicted(
            log, setting.workers, setting.prefetch_factor, in_order=setting.in_order
        )
        low, high = promised.bounds
        measured = real[str(setting)]
        row = [workload.name, workload.what, str(present), str(setting)]
        row += [in_words(promised), in_words(measured), f"{promised.value / measured.value:.2f}"]
        yield [*row, "yes" if low <= measured.value <= high else "no"]


def summary(rows: Sequence[Sequence[str]]) -> str:
    ratios = [float(row[-2]) - 1 for row in rows]
    errors = [abs(ratio) for ratio in ratios]
    in_range = statistics.mean(row[-1] == "yes" for row in rows)
    return (
        f"{len(rows)} predictions: bias {statistics.median(ratios):+.0%} (median), median error "
        f"{statistics.median(errors):.0%}, largest {max(errors):.0%}; {in_range:.0%} of the ranges "
        "contain what was measured."
    )


def compare_tuning(workload: Workload, folder: Path) -> Iterator[list[str]]:
    """A row of what the grid and tune came to."""
    began = time.perf_counter()
    loaders = {str(number): workload.loader(**options) for number, options in enumerate(GRID)}
    logs = folder / workload.name
    compare_backends(loaders, workload.train, batches=80, rounds=4, log_dir=logs)
    measured = backends(sorted(logs.iterdir()))
    rates = {each.name: each.real.value for each in measured if each.real is not None}
    best = GRID[int(max(rates, key=rates.__getitem__))]
    grid_s = time.perf_counter() - began
    began = time.perf_counter()
    ours = tune(workload.loader, workload.train, settings={"num_workers": workload.workers}).best
    tune_s = time.perf_counter() - began
    ratio = speedups(workload, {"tune": ours, "grid": best}, "grid")["tune"].value
    said = [", ".join(f"{name}={value}" for name, value in each.items()) for each in (best, ours)]
    took = [f"{ratio:.2f}", f"{grid_s:.0f} s", f"{tune_s:.0f} s"]
    yield [workload.name, *said, *took, "yes" if ratio >= AS_GOOD else "no"]


def main() -> int:
    with TemporaryDirectory() as place:
        folder = Path(place)
        known = {workload.name: workload for workload in workloads(folder)}
        parser = parser_of(__doc__, known)
        parser.add_argument("--tune", action="store_true", help="compare tune with a grid search")
        parser.add_argument("--cpus", type=int, help="use as many of the CPUs, by affinity")
        options = parser.parse_args()
        if options.cpus is not None:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cpus])
        torch.set_num_threads(1)
        heads, measure = (TUNE_HEADS, compare_tuning) if options.tune else (HEADS, predict)
        names = options.only or (TUNED if options.tune else known)
        rows = show(heads, (row for name in names for row in measure(known[name], folder)))
    if options.tune:
        return int(any(row[-1] == "no" for row in rows))
    print(f"\n{summary(rows)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

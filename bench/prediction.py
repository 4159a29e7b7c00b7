"""Speed-ups by other settings: predicted from one recorded run, and then measured.

Each workload is recorded once, with one or two workers. The speed-ups that are predicted from that
are then measured by plain loops, all settings in turns with the recorded ones. Beside them stands
plain division: the loader's time by the number of workers, no faster than the step. `--tune`
compares `tune` with a grid search instead. Exit status 1 when a workload fails, or tune's settings
have less than 95% of the throughput of the grid's best.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench.judge import backends
from bench.prediction_runs import outcomes, speedups
from bench.tables import show
from bench.zoo.workloads import QUICK_SETTINGS, workloads
from loadeval import compare_backends, tune

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.prediction_runs import Outcome
    from bench.zoo.workloads import Workload

HEADS = (
    *("workload", "what", "from", "to", "predicted", "measured", "predicted / measured"),
    *("in range", "divided by n", "divided / measured"),
)
TUNE_HEADS = (
    *("workload", "best of the grid", "tune's choice", "throughput, tune / grid"),
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


def summary(results: Sequence[Outcome]) -> dict[str, float]:
    """Errors as shares of what was measured, and the share of ranges that contain that."""
    errors = {
        "error": [abs(outcome.ratio - 1) for outcome in results],
        "divided_error": [abs(outcome.divided_ratio - 1) for outcome in results],
    }
    return {
        "predictions": len(results),
        "in_range": statistics.mean(outcome.is_in_range for outcome in results),
        "bias": statistics.median(outcome.ratio for outcome in results) - 1,
        **{f"median_{name}": statistics.median(values) for name, values in errors.items()},
        **{f"largest_{name}": max(values) for name, values in errors.items()},
    }


def summary_in_words(figures: dict[str, float]) -> str:
    return (
        f"{figures['predictions']:.0f} predictions: bias {figures['bias']:+.0%} (median), median "
        f"error {figures['median_error']:.0%}, largest {figures['largest_error']:.0%}; "
        f"{figures['in_range']:.0%} of the ranges contain what was measured.\n"
        f"Divided by n: median error {figures['median_divided_error']:.0%}, "
        f"largest {figures['largest_divided_error']:.0%}."
    )


def predict(workload: Workload, results: list[Outcome]) -> str:
    """Add its outcomes to `results`, and tell them."""
    ours = list(outcomes(workload))
    results += ours
    return ", ".join(f"{outcome.setting} {outcome.ratio:.2f}" for outcome in ours)


def compare_tuning(workload: Workload, rows: list[list[str]]) -> float:
    """Add a row of what the grid and tune came to, and return tune's throughput over the grid's."""
    began = time.perf_counter()
    loaders = {str(number): workload.loader(**options) for number, options in enumerate(GRID)}
    with tempfile.TemporaryDirectory() as folder:
        compare_backends(loaders, workload.train, batches=80, rounds=4, log_dir=folder)
        measured = backends(sorted(Path(folder).iterdir()))
    rates = {each.name: each.real.value for each in measured if each.real is not None}
    best = GRID[int(max(rates, key=rates.__getitem__))]
    grid_s = time.perf_counter() - began
    began = time.perf_counter()
    ours = tune(workload.loader, workload.train, settings={"num_workers": workload.workers}).best
    tune_s = time.perf_counter() - began
    ratio = speedups(workload, {"tune": ours, "grid": best}, "grid")["tune"]
    said = [", ".join(f"{name}={value}" for name, value in each.items()) for each in (best, ours)]
    reached = "yes" if ratio.value >= AS_GOOD else "no"
    rows.append([workload.name, *said, f"{ratio.value:.2f}", f"{grid_s:.0f} s", f"{tune_s:.0f} s"])
    rows[-1].append(reached)
    return ratio.value


def chosen_by(options: argparse.Namespace, folder: Path, default: Sequence[str]) -> list[Workload]:
    """The workloads that were asked for, in that order. Raises KeyError for an unknown name."""
    known = {workload.name: workload for workload in workloads(folder)}
    chosen = [known[name] for name in options.only or default or known]
    if options.workers is not None:
        chosen = [replace(workload, workers=options.workers) for workload in chosen]
    if options.quick:
        chosen = [replace(workload, rounds=3, settings=QUICK_SETTINGS) for workload in chosen]
    return chosen


def main() -> int:
    """Print a table, and for predictions a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true", help="compare tune with a grid search")
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    parser.add_argument("--only", action="append", help="run this workload; may be given again")
    parser.add_argument("--quick", action="store_true", help="two settings, and fewer batches")
    parser.add_argument("--workers", type=int, help="record all with as many workers")
    parser.add_argument("--cpus", type=int, help="use as many of the CPUs, by affinity")
    parser.add_argument("--json", type=Path, help="keep all numbers in this file")
    options = parser.parse_args()
    if options.cpus is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cpus])
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
    predictions: list[Outcome] = []
    tunings: list[list[str]] = []
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        try:
            chosen = chosen_by(options, Path(folder), TUNED if options.tune else ())
        except KeyError as unknown:
            parser.error(f"there is no workload {unknown}")
        for number, workload in enumerate(chosen, 1):
            began = time.perf_counter()
            try:
                if options.tune:
                    ratio = compare_tuning(workload, tunings)
                    failed |= ratio < AS_GOOD
                    summary_text = f"{ratio:.2f} of the throughput of the grid's best"
                else:
                    summary_text = predict(workload, predictions)
            except Exception as error:  # noqa: BLE001 - the other workloads go on
                failed, summary_text = True, f"failed: {error!r}"
            took_s = time.perf_counter() - began
            done = f"{number}/{len(chosen)} {workload.name}: {summary_text} ({took_s:.0f} s)"
            print(done, file=sys.stderr, flush=True)
    numbers: dict[str, Any] = {
        "cpus": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }
    if tunings:
        show(TUNE_HEADS, tunings, markdown=options.markdown)
        numbers["tuning"] = [dict(zip(TUNE_HEADS, row, strict=True)) for row in tunings]
    if predictions:
        rows = [prediction.row() for prediction in predictions]
        show(HEADS, rows, markdown=options.markdown)
        numbers["summary"] = summary(predictions)
        print(f"\n{summary_in_words(numbers['summary'])}")
        numbers["predictions"] = [
            {**asdict(prediction), "in_range": prediction.is_in_range} for prediction in predictions
        ]
    if options.json:
        options.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

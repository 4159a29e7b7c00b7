"""The metrics file: the keys of DALI's LoaderEvaluator in seconds, with the run beside them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.runlog.dali import is_dali, run_from_dali
from loadeval.runlog.lines import Line, RunEnd, encode, to_text
from loadeval.runlog.model import UNKNOWN, Run
from loadeval.runlog.reader import Assembly, opened
from loadeval.runlog.readings import starvations

if TYPE_CHECKING:
    import os

SECOND_NS = 1_000_000_000
LOG_START = b'{"type":'
"""How a run log begins; looking for it spares parsing all of one as something else."""


def metrics_of(run: Run) -> dict[str, Any]:
    """The figures of `run` under the keys of DALI's class, times in seconds; {} before any batch.

    `batch_times` are the waits of every epoch, of a run that keeps one batch in N those of the
    ones that it kept; `total_time` goes from each epoch's first request to its last delivery, or
    to the request that found the epoch exhausted.
    """
    found = _total(run)
    if not found.batches:
        return {}
    return {
        "mode": run.header.mode,
        "total_batches": found.batches,
        "total_time": (found.wait_ns + found.step_ns) / SECOND_NS,
        "avg_batch_time": found.wait_ns / found.batches / SECOND_NS,
        "min_batch_time": found.shortest_ns / SECOND_NS,
        "max_batch_time": found.longest_ns / SECOND_NS,
        "batch_times": (run.steps.wait_ns / SECOND_NS).tolist(),
        "cached_batches": run.header.cache.batches if run.header.cache else 0,
        "cache_ready": run.header.cache is not None,
    }


def span_of(run: Run) -> tuple[float | None, float | None]:
    """When the first batch was asked for, and when the last epoch was read to its end.

    In seconds since 1970; None before the first batch, and while or after an epoch goes on that
    was not read to its end.
    """
    steps = run.steps
    if not len(steps):
        return None, None
    created_s = datetime.fromisoformat(run.header.created).timestamp()
    last = next((end for end in run.ends if end.epoch == steps.epoch[-1]), None)
    if last is None or last.cause != "exhausted" or last.request_ns is None:
        return created_s + int(steps.request_ns[0]) / SECOND_NS, None
    ended_ns = last.request_ns + (last.wait_ns or 0)
    return created_s + int(steps.request_ns[0]) / SECOND_NS, created_s + ended_ns / SECOND_NS


class _Total(NamedTuple):
    """What all batches of a run add up to; steps that are not known add nothing."""

    batches: int
    wait_ns: int
    step_ns: int
    shortest_ns: int
    longest_ns: int


def _total(run: Run) -> _Total:
    wait_ns, step_ns, tallies = run.steps.wait_ns, run.steps.step_ns, run.tallies
    if run.header.every == 1:
        known = step_ns != UNKNOWN
        sums = (len(wait_ns), int(wait_ns.sum()), int(step_ns[known].sum()))
        extremes = (wait_ns.min(), wait_ns.max()) if len(wait_ns) else (0, 0)
        return _Total(*sums, *map(int, extremes))
    return _Total(
        run.batches,
        sum(tally.wait_ns for tally in tallies),
        sum(tally.step_ns or 0 for tally in tallies),
        min((tally.shortest_wait_ns for tally in tallies), default=0),
        max((tally.longest_wait_ns for tally in tallies), default=0),
    )


def summary_of(run: Run, dataset_size: int | None) -> str:
    """What `print_summary` prints: the lines of DALI's class, unknown where it would fail."""
    header, metrics = run.header, metrics_of(run)
    kept = header.cache.batches if header.cache else 0
    lines = [
        "Loader Evaluator Summary:",
        f"  Mode: {header.mode}",
        f"  Dataset size: {_known(dataset_size)}",
        f"  Number of batches: {_known(header.loader.length)}",
        f"  Cache size: {kept}/{_known(header.settings.get('num_cached_batches'))}",
        f"  Cache ready: {header.cache is not None}",
    ]
    if metrics:
        lines += [
            f"  Total batches processed: {metrics['total_batches']}",
            f"  Total time: {metrics['total_time']:.2f}s",
            f"  Average batch time: {metrics['avg_batch_time']:.4f}s",
            f"  Min batch time: {metrics['min_batch_time']:.4f}s",
            f"  Max batch time: {metrics['max_batch_time']:.4f}s",
        ]
    return "\n".join(lines)


def _known(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def write_metrics(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the metrics of `run`, and under the key `run` the whole of it, as JSON."""
    lines: list[Line] = [
        run.header,
        *(run.steps.blocks() if run.header.every == 1 else run.steps.excerpts()),
        *run.tallies,
        *run.pulls,
        *run.windows,
        *starvations(run.steps),
        *run.ends,
        *run.readings,
        *run.events,
    ]
    if run.closed:
        lines.append(RunEnd(run.batches))
    fields = {**metrics_of(run), "run": [encode(line) for line in lines]}
    Path(path).write_text(to_text(fields), encoding="utf-8")


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in `path`: a run log, a metrics file, or the JSON of DALI's LoaderEvaluator.

    Raises RunLogError, with the line number where there is one, when it is none of them.
    """
    path = Path(path)
    content = _object_in(path)
    if content is None:
        return Assembly.of_file(path).run()
    if "run" in content:
        return _from_metrics(content["run"], path)
    return run_from_dali(content, path)


def _object_in(path: Path) -> dict[str, Any] | None:
    """What a metrics file holds; None for any other file, which may yet be a run log."""
    with opened(path) as file:
        if file.read(len(LOG_START)) == LOG_START:
            return None
        file.seek(0)
        try:
            content = json.load(file)
        except (ValueError, RecursionError):
            return None
    known = isinstance(content, dict) and ("run" in content or is_dali(content))
    return content if known else None


def _from_metrics(lines: Any, path: Path) -> Run:
    assembly = Assembly(path, unit="item of 'run'")
    for number, fields in enumerate(lines if isinstance(lines, list) else [lines], start=1):
        assembly.add(number, fields)
    return assembly.run()

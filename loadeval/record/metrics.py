"""The metrics file: the keys of DALI's LoaderEvaluator in seconds, with the run beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from loadeval.errors import RunLogError
from loadeval.record.lines import encode
from loadeval.record.model import ARMS, UNKNOWN, Block, EpochEnd, Header, LoaderInfo, Run, Steps
from loadeval.record.runlog import Assembly, read_run_log

SECOND_NS = 1_000_000_000
RUN_LOG_START = b'{"type"'


def metrics_of(run: Run) -> dict[str, Any]:
    """The figures of `run` under the keys of DALI's class, times in seconds; {} before any batch.

    `batch_times` are the waits of every epoch; `total_time` goes from each epoch's first
    request to its last delivery, or to the request that found the epoch exhausted.
    """
    steps = run.steps
    if not len(steps):
        return {}
    waits = steps.wait_ns / SECOND_NS
    closed = steps.step_ns != UNKNOWN
    total_ns = int(steps.wait_ns.sum() + steps.step_ns[closed].sum())
    return {
        "mode": run.header.mode,
        "total_batches": len(steps),
        "total_time": total_ns / SECOND_NS,
        "avg_batch_time": float(waits.mean()),
        "min_batch_time": float(waits.min()),
        "max_batch_time": float(waits.max()),
        "batch_times": waits.tolist(),
        "cached_batches": run.header.cache.batches if run.header.cache else 0,
        "cache_ready": run.header.cache is not None,
    }


def summary_of(run: Run, dataset_size: int | None) -> str:
    """What `print_summary` prints: the lines of DALI's class, unknown where it would fail."""
    header, metrics = run.header, metrics_of(run)
    kept = header.cache.batches if header.cache else 0
    lines = [
        "Loader Evaluator Summary:",
        f"  Mode: {header.mode}",
        f"  Dataset size: {_known(dataset_size)}",
        f"  Number of batches: {_known(header.loader.length)}",
        f"  Cache size: {kept}/{header.settings.get('num_cached_batches')}",
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
    block_of = [_as_block(run.steps, epoch) for epoch in np.unique(run.steps.epoch)]
    lines = [encode(line) for line in (run.header, *block_of, *run.ends, *run.events)]
    text = json.dumps({**metrics_of(run), "run": lines})
    Path(path).write_text(text + "\n", encoding="utf-8")


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in `path`: a run log, a metrics file, or the JSON of DALI's LoaderEvaluator.

    Raises RunLogError, with the line number where there is one, when it is none of them.
    """
    path = Path(path)
    try:
        metrics = _metrics_object(path)
        return read_run_log(path) if metrics is None else _from_metrics(metrics, path)
    except OSError as error:
        raise RunLogError(
            f"cannot read {path}: {error.strerror or error}; give the path of a file that "
            "log_file= or save_metrics() wrote"
        ) from error


def _metrics_object(path: Path) -> dict[str, Any] | None:
    with path.open("rb") as file:
        if file.read(len(RUN_LOG_START)) == RUN_LOG_START:
            return None
        file.seek(0)
        try:
            content = json.load(file)
        except ValueError:
            return None
    return content if isinstance(content, dict) and "batch_times" in content else None


def _from_metrics(metrics: dict[str, Any], path: Path) -> Run:
    if "run" not in metrics:
        return _from_dali(metrics, path)
    assembly = Assembly(path)
    for number, fields in enumerate(metrics["run"], start=1):
        assembly.add(number, fields)
    assembly.closed = True
    return assembly.run()


def _from_dali(metrics: dict[str, Any], path: Path) -> Run:
    try:
        waits = np.rint(np.array(metrics["batch_times"], dtype=float) * SECOND_NS).astype(np.int64)
        total_ns = round(float(metrics["total_time"]) * SECOND_NS)
        mode = {"log": "log", "replay": "replay"}[metrics["mode"]]
    except (KeyError, TypeError, ValueError) as error:
        raise RunLogError(
            f"{path}, line 1 is not what DALI's LoaderEvaluator writes: {error!r}; expected "
            "'mode', 'total_time' in seconds and 'batch_times', a list of seconds"
        ) from error
    step_total = total_ns - int(waits.sum())
    measured = step_total >= 0 and len(waits) > 0
    # The file has no times of steps, only their sum: each step gets the mean.
    step_ns = np.full(len(waits), step_total // len(waits) if measured else UNKNOWN)
    cycles = np.concatenate([[0], np.cumsum(waits + np.maximum(step_ns, 0))])
    unknown = np.full(len(waits), UNKNOWN)
    arm = "ideal" if mode == "replay" else "real"
    block = Block(0, arm, cycles[:-1], waits, step_ns, unknown, unknown)
    end = EpochEnd(0, "exhausted", int(cycles[-1]), 0) if measured else EpochEnd(0, "broken off")
    note = (
        "steps are their mean over the epoch: DALI's file has no time of each"
        if measured
        else "steps were not measured: DALI's class times them only when an epoch runs to its end"
    )
    return Run(
        header=_dali_header(mode, path),
        steps=Steps.from_blocks([block], [end]),
        ends=(end,),
        closed=True,
        notes=(note,),
        path=path,
    )


def _dali_header(mode: Any, path: Path) -> Header:
    return Header(
        run_id=path.stem,
        name=path.stem,
        mode=mode,
        created="not recorded",
        unit="samples",
        warmup=1,
        loader=LoaderInfo(backend="not recorded", adapter="DALI's LoaderEvaluator"),
    )


def _as_block(steps: Steps, epoch: int) -> Block:
    rows = steps.epoch == epoch
    return Block(
        epoch=int(epoch),
        arm=ARMS[int(steps.arm[rows][0])],
        request_ns=steps.request_ns[rows],
        wait_ns=steps.wait_ns[rows],
        step_ns=steps.step_ns[rows],
        samples=steps.samples[rows],
        nbytes=steps.nbytes[rows],
    )

"""What DALI's LoaderEvaluator has: its metrics, its summary, and the JSON that it saves."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import Block, CacheInfo, Count, EpochEnd, Header, LoaderInfo
from loadeval.data.run import ARMS, NOT_RECORDED, SECOND_NS, Run, completed, steps_of
from loadeval.errors import RunLogError

LONGEST_S = 1e9
"""32 years: more is no time that a batch took."""
STEPS_ARE_MEANS = (
    "every step is the mean over its epoch, the loader's epoch start included: DALI's file has the "
    "time of the whole epoch, and of the waits"
)
NO_STEPS = (
    "steps were not measured: DALI's class has the time of an epoch only when that ran to its "
    "end, by a clock that was not set back meanwhile"
)


class DaliMetrics(msgspec.Struct):
    """What is read of DALI's JSON."""

    mode: Literal["log", "replay"]
    batch_times: Annotated[list[Annotated[float, Meta(ge=0, le=LONGEST_S)]], Meta(min_length=1)]
    total_time: Annotated[float, Meta(ge=-LONGEST_S, le=LONGEST_S)]
    cached_batches: Count


def run_of_dali(path: Path, text: bytes) -> Run:
    """The last epoch that DALI's class measured; each step is the mean of what the waits leave.

    Raises RunLogError when there is no epoch in `text`, which was read from `path`.
    """
    try:
        metrics = msgspec.json.decode(text, type=DaliMetrics)
    except msgspec.ValidationError as error:
        raise RunLogError(
            f"{path} is neither a run log nor a metrics file of DALI's LoaderEvaluator with an "
            f"epoch that was measured ({error}); measure an epoch, and save its metrics, again"
        ) from None
    wait_ns = [round(time_s * SECOND_NS) for time_s in metrics.batch_times]
    count, left_ns = len(wait_ns), round(metrics.total_time * SECOND_NS) - sum(wait_ns)
    step_ns: list[int | None] | None = None
    if is_whole := metrics.total_time > 0 and left_ns >= 0:
        step_ns = [left_ns // count for _ in wait_ns]
    arm, cache = ARMS[0], None
    if metrics.mode == "replay":
        arm, cache = ARMS[1], CacheInfo(metrics.cached_batches)
    loader = LoaderInfo(backend=NOT_RECORDED, adapter="DALI's LoaderEvaluator")
    return Run(
        Header(
            run_id=path.stem,
            name=path.stem,
            mode=metrics.mode,
            created=NOT_RECORDED,
            unit="samples",
            warmup=1,
            loader=loader,
            cache=cache,
        ),
        completed(steps_of([Block(0, arm, [UNKNOWN] * count, wait_ns, step_ns)]), [], []),
        ends=(EpochEnd(0, "exhausted" if is_whole else "broken off"),),
        closed=True,
        notes=(STEPS_ARE_MEANS if is_whole else NO_STEPS,),
        path=path,
    )


def write_metrics(run: Run, lines: Iterable[bytes], path: str | os.PathLike[str]) -> None:
    """Write the metrics of `run`, and under the key `run` the lines of its log, as JSON."""
    fields = {**metrics_of(run), "run": [msgspec.Raw(line) for line in lines]}
    Path(path).write_bytes(msgspec.json.encode(fields) + b"\n")


def metrics_of(run: Run) -> dict[str, Any]:
    """The figures of `run` under the keys of DALI's class, times in seconds; {} before any batch.

    `batch_times` are the waits of every epoch; `total_time` goes from each epoch's first request to
    its last delivery, or to the request that found the epoch exhausted.
    """
    if not run.batches:
        return {}
    waits, steps = run.steps.wait_ns, run.steps.step_ns
    wait_ns, step_ns = int(waits.sum()), int(steps[steps != UNKNOWN].sum())
    return {
        "mode": run.header.mode,
        "total_batches": run.batches,
        "total_time": (wait_ns + step_ns) / SECOND_NS,
        "avg_batch_time": wait_ns / run.batches / SECOND_NS,
        "min_batch_time": int(waits.min()) / SECOND_NS,
        "max_batch_time": int(waits.max()) / SECOND_NS,
        "batch_times": (waits / SECOND_NS).tolist(),
        "cached_batches": run.header.cache.batches if run.header.cache else 0,
        "cache_ready": run.header.cache is not None,
    }


def span_of(run: Run) -> tuple[float | None, float | None]:
    """When the first batch was asked for, and when the last epoch was read to its end.

    In seconds since 1970; None before the first batch, and while or after an epoch goes on that
    was not read to its end.
    """
    if not run.batches:
        return None, None
    created_s = datetime.fromisoformat(run.header.created).timestamp()
    began_s = created_s + int(run.steps.request_ns[0]) / SECOND_NS
    for end in run.ends:
        is_last = end.epoch == run.steps.epoch[-1] and end.cause == "exhausted"
        if is_last and end.request_ns is not None:
            return began_s, created_s + (end.request_ns + (end.wait_ns or 0)) / SECOND_NS
    return began_s, None


def summary_of(run: Run, dataset_size: int | None) -> str:
    """What `print_summary` prints: the lines of DALI's class, unknown where it would fail."""
    header, metrics, unknown = run.header, metrics_of(run), "unknown"
    length, most = header.loader.length, header.settings.get("num_cached_batches")
    facts = {
        "Mode": header.mode,
        "Dataset size": unknown if dataset_size is None else dataset_size,
        "Number of batches": unknown if length is None else length,
        "Cache size": f"{header.cache.batches if header.cache else 0}/{most or unknown}",
        "Cache ready": header.cache is not None,
    }
    if metrics:
        facts |= {
            "Total batches processed": metrics["total_batches"],
            "Total time": f"{metrics['total_time']:.2f}s",
            "Average batch time": f"{metrics['avg_batch_time']:.4f}s",
            "Min batch time": f"{metrics['min_batch_time']:.4f}s",
            "Max batch time": f"{metrics['max_batch_time']:.4f}s",
        }
    lines = (f"  {name}: {value}" for name, value in facts.items())
    return "\n".join(["Loader Evaluator Summary:", *lines])

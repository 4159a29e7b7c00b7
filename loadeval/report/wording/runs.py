"""Sentences about runs by themselves: their loader, their events, the growth of their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.estimate.headroom import known_of
from loadeval.analysis.estimate.memory import GrowthAdvice, GrowthReason
from loadeval.analysis.rules.fixes import OF_STARTS
from loadeval.data.run import NOT_RECORDED
from loadeval.report.formatting import (
    NOT_MEASURED,
    duration,
    filled,
    number,
    per_second,
    printable,
    settings_as_code,
    share,
    short_name,
)
from loadeval.report.wording.backends import backends_headline
from loadeval.report.wording.ranks import job_headline
from loadeval.report.wording.verdict import (
    LOADED_NOTHING,
    NO_STEADY_BATCH,
    capitalized,
    headline,
    known_in_words,
    with_ci,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum
    from typing import Any

    from loadeval.analysis.estimate.memory import Growth
    from loadeval.analysis.report import Report, RunReport
    from loadeval.data.lines import Event, LoaderInfo
    from loadeval.data.run import Run


LONGEST_OVERRIDES = 200
"""Characters that are shown of the settings that a loader had in place of its program's."""


def report_headline(report: Report) -> str:
    """What the runs show, in one sentence."""
    if report.comparison is not None:
        return headline(report.comparison.headroom)
    if report.backends is not None:
        return backends_headline(report.backends)
    return _single_run_headline(report) if report.job is None else job_headline(report, report.job)


def _single_run_headline(report: Report) -> str:
    (run,) = report.runs
    (side,) = run.sides
    if side.summary.iteration_ns is None:
        so_far = known_in_words(known_of(run.run)) if side.arm == "real" else ""
        return f"Not measured: {NO_STEADY_BATCH}{'. ' * bool(so_far)}{so_far.removesuffix('.')}"
    if side.arm == "ideal":
        return capitalized(LOADED_NOTHING)
    findings = () if run.diagnosis is None else run.diagnosis.findings
    starts = (finding.cost_share or 0.0 for finding in findings if finding.rule in OF_STARTS)
    if starts_share := max(starts, default=0.0):
        in_all = starts_share + (1 - starts_share) * (side.summary.wait_share or 0.0)
        return (
            f"Training waited for batches {share(in_all)} of the time "
            f"({share(starts_share)} for the first batch of each epoch)"
        )
    waited = f"Training waited for batches {share(side.summary.wait_share)} of the time"
    if run.rate is None:
        return waited
    rate = per_second(run.rate.value, short_name(run.unit))
    return f"{waited}, at {rate}{with_ci(run.rate, number)}"


def run_notes(report: RunReport) -> list[str]:
    """What reading the run brought up, what happened while it ran, and what went wrong in it."""
    run, name = report.run, short_name(report.run.header.name)
    lines = [f"{name}: {note}" for note in run.notes]
    lines += [f"{name}, {event}" for event in _events(run)]
    lines += [
        f"{name}, epoch {end.epoch} failed: {end.error}"
        for end in run.ends
        if end.cause == "failed"
    ]
    lines += [
        f"{name}: memory of the {growth.subject} grows: {growth_reason(growth)}. "
        f"{growth_advice(growth)}"
        for growth in report.metrics.growths
        if growth.grows
    ]
    return [printable(line) for line in lines]


def described_loader(run: Run) -> str:
    """What served the batches of `run`, in a few words: what is known, and nothing of the rest."""
    loader, cache = run.header.loader, run.header.cache
    if cache is not None:
        return f"{printable(cache.batches)} kept batches replayed"
    if loader.backend == NOT_RECORDED:
        return "loader not recorded"
    parts = [short_name(class_name(loader))]
    for name, value in (
        ("workers", loader.workers),
        ("prefetch depth", loader.prefetch_depth),
        ("batch size", loader.batch_size),
    ):
        parts += [] if value is None else [f"{name} {short_name(value)}"]
    if loader.overrides:
        parts.append(overridden(loader.overrides))
    return ", ".join(parts)


def overridden(overrides: Mapping[str, Any]) -> str:
    """The settings that a loader had in place of its program's."""
    return short_name(f"with {settings_as_code(overrides)}", LONGEST_OVERRIDES)


def class_name(loader: LoaderInfo) -> str:
    """The name of the loader's class, without the module that it is in."""
    return str(loader.backend).rsplit(".", maxsplit=1)[-1]


PER_HOUR = "{bytes_per_hour:size} per hour, {share:share} of the {limit_bytes:size} available"
GROWTH: dict[Enum, str] = {
    GrowthReason.GROWS: f"it grows by {PER_HOUR}",
    GrowthReason.STARTED_ANEW: (
        f"it grows by {PER_HOUR}, but the workers restart before that matters"
    ),
    GrowthReason.LITTLE: f"it grows by only {PER_HOUR}",
    GrowthReason.BY_CHANCE: "any growth is within the noise",
    GrowthReason.NO_READINGS: "no memory readings of the {subject}",
    GrowthReason.PROBE_FAILED: "{reason}",
    GrowthReason.NO_LIMIT: "the machine's memory size is not known",
    GrowthReason.FEW_READINGS: (
        "too few memory readings for a trend ({count}); run for some minutes"
    ),
    GrowthAdvice.DROP_KEPT_TENSORS: (
        "Something is kept from step to step: look for losses or outputs kept as tensors with "
        "their autograd graph (keep loss.item() instead), and for unbounded lists and caches."
    ),
    GrowthAdvice.AVOID_COPY_ON_WRITE: (
        "The usual cause is copy-on-write: reading a Python object writes its reference count, so "
        "forked workers gradually copy the dataset's lists and dictionaries. Keep them in NumPy "
        "arrays, tensors or a memory-mapped file, or use fewer workers. Otherwise look for "
        "unbounded caches in the dataset."
    ),
    GrowthAdvice.BOUND_WORKER_CACHES: (
        "Each worker has its own dataset: look for unbounded caches in it (lru_cache, a dict of "
        "what was read), and for files that it never closes; or use fewer workers, or restart them "
        "each epoch."
    ),
}


def growth_reason(growth: Growth) -> str:
    """How the memory of a subject grows, or why that is not known: a clause."""
    reason = filled(GROWTH[growth.reason.code], growth.reason.values)
    return f"{NOT_MEASURED}: {reason}" if growth.bytes_per_hour is None else reason


def growth_advice(growth: Growth) -> str:
    """What to do about it; "" for nothing."""
    return "" if growth.advice is None else GROWTH[growth.advice]


def _events(run: Run) -> list[str]:
    """What happened and when; errors that were read on, and what happened again, are one line."""
    groups: dict[str, list[Event]] = {}
    for event in run.events:
        key = event.kind if event.kind == "error read on" else event.message
        groups.setdefault(key, []).append(event)
    lines = []
    for first, *again in groups.values():
        line = f"at {duration(first.time_ns)}: {first.message}"
        if again:
            last = duration(again[-1].time_ns)
            what = "errors" if first.kind == "error read on" else "times"
            line += f" ({len(again) + 1:,} {what}, the last at {last})"
        lines.append(line)
    return lines

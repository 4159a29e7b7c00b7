"""Predictions in words: what a loader would be held up by, and what is assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.predict.prediction import Assumption, Limit, Shortage
from loadeval.report.formatting import filled, number, short_name, speedup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from enum import Enum

    from loadeval.analysis.predict.prediction import Prediction, Range, WorkerCurve
    from loadeval.analysis.remark import Remark

TITLE = "What if"
MEASURED, PREDICTED, PRESENT = "measured", "predicted", "present"
PRESENT_HEAD, PREDICTED_HEAD = "present, measured", "what if, predicted"
SPEEDUP, HELD_UP_BY, MEMORY = "speed-up", "held up by", "memory"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the name of a column
CURVE_HEADLINE = f"{TITLE}: throughput against num_workers, measured and predicted"
CURVE_TABLE = "Throughput against num_workers, measured and predicted"
ONLY_MEASURED = "Throughput against num_workers, measured"
ASSUMED = "Assumed:"
NOTHING_CHANGED = "the present settings"

LIMITS = {
    Limit.STEP: "training step",
    Limit.WORKERS: "workers",
    Limit.CPUS: "CPUs",
    Limit.TRAINING_PROCESS: "training process",
    Limit.STORAGE: "storage",
    Limit.LOCK: "a lock",
    Limit.PREFETCH: "prefetching",
    Limit.EPOCH_STARTS: "epoch starts",
}
"""The limits in a table."""
NO_WORKERS = "no workers"
LIMIT_SENTENCES = {
    Limit.STEP: "The training step is the limit: the loader keeps up with it.",
    Limit.WORKERS: "The workers are the limit: more of them, or cheaper samples, would help.",
    Limit.CPUS: "The CPUs are the limit: more of them, or cheaper samples, would help most.",
    Limit.TRAINING_PROCESS: (
        "The training process is the limit: besides its step it hands out indices and receives "
        "batches, which more workers do not change."
    ),
    Limit.STORAGE: "Storage is the limit: more workers would not read faster.",
    Limit.LOCK: "A lock is the limit: workers wait for each other.",
    Limit.PREFETCH: (
        "Too few batches are prefetched: a larger prefetch_factor would help where batches take "
        "unequal times."
    ),
    Limit.EPOCH_STARTS: "The starts of epochs are the limit: the loader keeps up within them.",
}
NO_WORKERS_SENTENCE = (
    "Loading in the training process is the limit: workers would load in the background."
)
ASSUMPTIONS: dict[Enum, str] = {
    Assumption.CPU_TIME_GROWS: (
        "For each further CPU in use, a batch takes {least:.0%} to {most:.0%} more CPU time. Runs "
        "with different num_workers show how much it is."
    ),
    Assumption.BLOCKED_IN_PARALLEL: (
        "Workers are blocked for {share:.0%} of fetching. With more workers, that takes no longer."
    ),
    Assumption.STORAGE_NOT_KNOWN: (
        "Workers are blocked for {share:.0%} of fetching, and it is not known whether that takes "
        "longer with more workers. One end of the range assumes that the storage is no faster in "
        "total, the other that each worker waits as now. Training with more workers would tell."
    ),
    Assumption.LOCK_LIMITS: (
        "Workers wait for a lock for {share:.0%} of fetching. However many there are, they "
        "get through it no faster than now."
    ),
    Assumption.CPUS_NOT_READ: (
        "There is a CPU for each worker: the run does not tell how many CPUs training may use."
    ),
    Assumption.STEP_PER_SAMPLE: "The training step takes the same time for a sample as in the run.",
    Assumption.HAND_OVER_USUAL: (
        "The training process receives a batch from a worker in some {hand_over_ns:duration}, by "
        "the number of its tensors: the run has no workers to show it."
    ),
    Assumption.TENSORS_NOT_COUNTED: (
        "A batch has few tensors: they were not counted, and each takes time to receive."
    ),
    Assumption.WORKERS_START: (
        "Starting a worker, some {start_ns:duration}, is no part of the steady state. With "
        "persistent_workers=True workers start once, not in each epoch."
    ),
    Assumption.STEP_SPINS: (
        "The threads of a training step go on as now. In this run they spin while workers need the "
        "CPUs, so all of this may be far off: give the step fewer threads, and measure again."
    ),
    Assumption.UNLIKE_REPLAY: (
        "What the simulation leaves out changes nothing: with the settings of the run it takes "
        "{ratio:speedup} the time that was measured."
    ),
}

SHORTAGES: dict[Enum, str] = {
    Shortage.MEMORY: (
        "That takes {needed_bytes:size} of memory, and the machine of the run has "
        "{there_bytes:size}."
    ),
    Shortage.SHARED_MEMORY: (
        "That takes {needed_bytes:size} of /dev/shm, and {there_bytes:size} of it were free when "
        "the run began."
    ),
}
SHORTAGES_FROM: dict[Enum, str] = {
    Shortage.MEMORY: (
        "With {workers} workers or more, memory exceeds the {there_bytes:size} of the run's "
        "machine."
    ),
    Shortage.SHARED_MEMORY: (
        "With {workers} workers or more, batches exceed the {there_bytes:size} of /dev/shm that "
        "were free when the run began."
    ),
}
REMOVED = 1000.0
"""A part that becomes more times as fast than this is shown as removed."""

RANGES = "Brackets: 95% CI of what is measured, expected range of what is predicted."
ALWAYS_PREDICTED = "Memory, and what training is held up by, are always predicted."
WHAT_SPEEDUPS_ARE = "Speed-ups are over the present run, in the steady state."
WHAT_MEMORY_IS = "Memory is that of the workers and prefetched batches."
WHAT_SHARED_MEMORY_IS = f"{SHARED_MEMORY} holds the prefetched batches."
RANGE = "expected range"
CHOSEN = "what if"
WHISKERS = "Whiskers are 95% CIs of what is measured."
BAND = "The band is the expected range of what is predicted."
CAPTION = (
    "Throughput in {unit} per second against num_workers: dots are measured, the dashed line is "
    f"predicted. {WHISKERS} {BAND}"
)
CPU_MARK = " The vertical line is where there is a worker for each CPU."


def ranged(expected: Range, text: Callable[[float], str]) -> str:
    """A predicted value, and its expected range: 1.50x [1.33x, 1.65x]."""
    return f"{text(expected.value)} [{text(expected.low)}, {text(expected.high)}]"


def limit_in_short(prediction: Prediction) -> str:
    """What limits throughput, for a table."""
    if prediction.limit is Limit.WORKERS and not prediction.num_workers:
        return NO_WORKERS
    return LIMITS[prediction.limit]


def limit_sentence(prediction: Prediction) -> str:
    """What limits throughput, and what that means."""
    if prediction.limit is Limit.WORKERS and not prediction.num_workers:
        return NO_WORKERS_SENTENCE
    return LIMIT_SENTENCES[prediction.limit]


def assumption_in_words(remark: Remark) -> str:
    """What a prediction assumes."""
    return filled(ASSUMPTIONS[remark.code], remark.values)


def assumptions_in_words(predicted: Iterable[Prediction]) -> list[str]:
    """What any of these predictions assumes, each once."""
    sentences = (
        assumption_in_words(remark) for prediction in predicted for remark in prediction.assumptions
    )
    return list(dict.fromkeys(sentences))


def shortage_in_words(remark: Remark) -> str:
    """What runs out: memory or shared memory."""
    return filled(SHORTAGES[remark.code], remark.values)


def shortages_in_words(predicted: Iterable[Prediction]) -> list[str]:
    """What runs out, and from how many workers on; each thing once."""
    least: dict[Enum, str] = {}
    for prediction in sorted(predicted, key=lambda prediction: prediction.num_workers):
        for remark in prediction.shortages:
            values = {**remark.values, "workers": prediction.num_workers}
            least.setdefault(remark.code, filled(SHORTAGES_FROM[remark.code], values))
    return list(least.values())


def settings_of(prediction: Prediction) -> dict[str, str]:
    """The settings of a prediction that are known, by the names that a DataLoader gives them."""
    settings = {
        "num_workers": f"{prediction.num_workers}",
        "prefetch_factor": f"{prediction.prefetch_factor}",
        "in_order": f"{prediction.in_order}",
        "batch_size": "" if prediction.batch_size is None else f"{prediction.batch_size}",
        "CPUs": "" if prediction.cpus is None else f"{prediction.cpus:g}",
        "faster": ", ".join(
            f"{short_name(name)} {times_in_words(factor)}"
            for name, factor in prediction.faster.items()
        ),
    }
    return {name: value for name, value in settings.items() if value}


def times_in_words(factor: float) -> str:
    """How many times as fast something becomes: 4x, 2.5x, removed."""
    return "removed" if factor > REMOVED else f"{factor:g}x"


def settings_in_words(prediction: Prediction) -> str:
    """All settings of a prediction that are known."""
    return ", ".join(f"{name}={value}" for name, value in settings_of(prediction).items())


def changed_in_words(prediction: Prediction, present: Prediction) -> str:
    """The settings in which `one` differs from `present`."""
    before = settings_of(present)
    changed = [
        f"{name}={value}"
        for name, value in settings_of(prediction).items()
        if value != before.get(name)
    ]
    return ", ".join(changed) or NOTHING_CHANGED


def prediction_in_words(prediction: Prediction) -> str:
    """A prediction in sentences: throughput and speed-up, what limits it, what is assumed."""
    assumed = assumptions_in_words([prediction])
    return " ".join(
        [
            f"Predicted with {settings_in_words(prediction)}:",
            f"{ranged(prediction.throughput, number)} {short_name(prediction.unit)}/s,",
            f"{ranged(prediction.speedup, speedup)} what was measured.",
            limit_sentence(prediction),
            *map(shortage_in_words, prediction.shortages),
            *([ASSUMED, *assumed] if assumed else []),
        ]
    )


def cpus_in_words(curve: WorkerCurve) -> str:
    """How many CPUs there are, and what of them others use; "" where that is not known."""
    if curve.cpus is None:
        return ""
    others = f"{curve.others_cpus:.1f}"
    used = "" if others == "0.0" else f"; other programs use {others} of them"
    return f"Training may use {cpu_count(curve.cpus)}{used}."


def cpu_count(cpus: float) -> str:
    """1 CPU, 2.5 CPUs, 128 CPUs."""
    return f"{cpus:g} {'CPU' if cpus == 1 else 'CPUs'}"

"""What in two runs makes their comparison mean less than it seems to."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loadeval.analysis.checks import unrepresentative
from loadeval.analysis.readings import quantities
from loadeval.runlog.model import NOT_RECORDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.analysis.figures import Figures
    from loadeval.analysis.summary import Summary
    from loadeval.runlog.model import Run

LOADER_FACTS = ("backend", "batch_size", "device", "pinned", "length")
"""What replay leaves as it is; its workers are stopped, so their number does not matter."""
MANY_FAULTS = 1000
"""More in a batch, under which they take less than a millisecond."""
FAR_MORE = 3
MACHINE_FACTS = ("host", "cpus_usable")
BY_BATCH = "they are compared batch by batch, as if batches were equally large."
TWO_RUNS = (
    "Two separate runs are compared: a drift of the machine between them counts as a "
    "difference in loading, and is not in the interval."
)


def same_unit(real: Run, ideal: Run) -> bool:
    """Whether both runs call their samples the same."""
    return real.header.unit == ideal.header.unit


def about_two_runs(real: Run, ideal: Run, one: Summary, other: Summary) -> str:
    """Sentences about two runs and their summaries, the weightiest first."""
    said = []
    machines = _differences(MACHINE_FACTS, real.header.environment, ideal.header.environment)
    if machines:
        said.append(f"The runs were made on different machines: {machines}.")
    loaders = _differences(LOADER_FACTS, asdict(real.header.loader), asdict(ideal.header.loader))
    if loaders:
        said.append(f"Another loader was replayed than the one that was timed: {loaders}.")
    if not same_unit(real, ideal):
        said.append(f"The runs count {real.header.unit} and {ideal.header.unit}: {BY_BATCH}")
    elif any(side.steady_batches and side.samples_per_batch is None for side in (one, other)):
        said.append(f"The number of samples is not known in both runs: {BY_BATCH}")
    unlike = unrepresentative(real, ideal)
    return " ".join([*said, *filter(None, [unlike]), TWO_RUNS])


def not_quite_free(busy: float | None) -> str:
    """A sentence where workers were `busy` in the ideal blocks, for that part of a CPU."""
    if busy is None:
        return ""
    return (
        f"The loader's workers were at work in the ideal blocks, for {busy:.0%} of a CPU: where "
        "they slow the step down, more is lost than was found."
    )


def more_faults(run: Run, figures: Figures) -> str:
    """A sentence where the step met far more page faults when loading was free; "" elsewhere.

    It may: the C library gives memory back to the system and fetches it again, or does not, by
    what else was allocated meanwhile. A fault takes about a microsecond.
    """
    rates = [
        (found.real.mean, found.ideal.mean)
        for found in quantities(run)
        if (found.subject, found.name) == ("process", "minor_faults_per_s")
        and found.real is not None
        and found.ideal is not None
    ]
    if not rates or figures.real_ns is None or figures.ideal_ns is None:
        return ""
    real, ideal = rates[0][0] * figures.real_ns / 1e9, rates[0][1] * figures.ideal_ns / 1e9
    if ideal - real < MANY_FAULTS or ideal < FAR_MORE * real:
        return ""
    return (
        f"A step met {ideal:,.0f} page faults a batch with free loading and {real:,.0f} with real "
        "loading, about a microsecond each: free loading is faster than it looks. With "
        "MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ set to 2000000000 the C library keeps "
        "its memory."
    )


def _differences(names: tuple[str, ...], one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    pairs = [(name.replace("_", " "), one.get(name), other.get(name)) for name in names]
    return ", ".join(
        f"{name} {first} and {second}"
        for name, first, second in pairs
        if first != second and all(fact not in (None, NOT_RECORDED) for fact in (first, second))
    )

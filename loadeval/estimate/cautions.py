"""What makes a gap mean less than its figures say, and what was not measured: a sentence each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from loadeval.data.run import Run
from loadeval.estimate.before_after import BATCHES, BY_BATCH, changes_between, unit_of
from loadeval.estimate.gap import Gap
from loadeval.estimate.metrics import quantities
from loadeval.estimate.verdict import busy_in_ideal, rare_stalls
from loadeval.words import share

LEAST_STARTS_SHARE = 0.02
"""Where an epoch's start and end add less than this share, it hardly matters that they vary."""
TOLD_FACTS = ("backend", "batch_size", "device", "pinned", "length", "host", "cpus_usable")
"""What a replay has as its log; its workers are stopped, so their number does not matter."""
MOVES = "the next run may differ by more than the 95% CI"
LIMITED = (
    (
        "stolen_share",
        0.02,
        f"Other virtual machines took {{}} of the CPU time that this one wanted (steal): {MOVES}.",
    ),
    (
        "cgroup_throttled_share",
        0.05,
        (
            "The cgroup's CPU limit throttled the processes in {} of its periods: the figures "
            "would differ with another limit."
        ),
    ),
    (
        "thermal_slowdown_flag",
        0.05,
        f"Heat slowed a GPU down for {{}} of the time: {MOVES}. Check its cooling.",
    ),
    (
        "hardware_slowdown_flag",
        0.05,
        f"Its hardware slowed a GPU down for {{}} of the time: {MOVES}. Check its power.",
    ),
)
"""What of the machine moves the figures from one run to the next: a quantity, above what mean of an
arm it does, and what is then said of it."""


def cautions(gap: Gap, run: Run, ideal: Run | None = None) -> Iterator[str]:
    """What makes the figures mean less than they seem to, the weightiest first."""
    cpus = busy_in_ideal(run)
    if cpus is not None:
        yield (
            f"The loader's workers were busy in the ideal blocks ({cpus:.0%} of a CPU): if they "
            "slow the step down, more time is lost than reported."
        )
    if ideal is not None:
        yield from _about_two_runs(run, ideal)
    yield from _about_the_machine(run, ideal)
    if len(run.stages) and gap.pairs is not None and not run.steps.instrumented.any():
        yield (
            "The stages of the loader were timed in the blocks that count, which takes time too: a "
            "batch of a few milliseconds seems to load slower than it does."
        )
    if stalls := rare_stalls(gap, run):
        yield f"Stalls were too rare to be estimated: {stalls}."
    starts_share = abs(gap.share("epoch starts"))
    if gap.speedup and gap.epochs == 1 and starts_share >= LEAST_STARTS_SHARE:
        yield (
            f"Only one epoch start was seen, {share(starts_share)} of the time: the 95% CI leaves "
            "out how much epoch starts differ. Run two epochs or more."
        )


def not_measured(gap: Gap, run: Run) -> Iterator[str]:
    """What was not measured, and why."""
    if gap.pairs and gap.samples_per_batch is None:
        yield f"Samples are not known for every batch: {BY_BATCH}."
    if gap.pairs and run.loader.prefetch_depth is None:
        yield (
            "The loader's prefetch depth is not known: if it prefetches, real blocks begin with a "
            "queue that ideal blocks have filled, and more time is lost than reported."
        )
    if gap.speedup is not None and gap.starts is None:
        yield (
            "Epoch starts are not part of the result: none was seen, or the length of an epoch is "
            "not known."
        )


def _about_two_runs(real: Run, ideal: Run) -> Iterator[str]:
    for change in changes_between(real, ideal):
        if change.name in TOLD_FACTS:
            yield (
                f"The two runs differ: {change.name.replace('_', ' ')} {change.before} (real), "
                f"{change.now} (ideal)."
            )
    if unit_of([real, ideal]) == BATCHES:
        yield f"Samples are not known in both runs: {BY_BATCH}."
    yield (
        "The runs are separate: machine drift between them counts as a loading difference, and the "
        "95% CI does not cover it."
    )


def _about_the_machine(run: Run, ideal: Run | None) -> Iterator[str]:
    levels = defaultdict[str, list[float]](list)
    read = {(each.subject, each.name): each.means for each in quantities(run, ideal)}
    for (_, name), means in read.items():
        levels[name] += [mean for mean in means.values() if mean is not None]
    for arm, cores in read.get(("machine", "stolen_cores"), {}).items():
        if cores and (in_use := read.get(("machine", "cpu_cores"), {}).get(arm)):
            levels["stolen_share"].append(cores / (cores + in_use))
    for name, least, sentence in LIMITED:
        if (most := max(levels[name], default=0.0)) > least:
            yield sentence.format(share(most))

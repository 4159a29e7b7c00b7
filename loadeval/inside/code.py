"""The lines of code that workers were seen in, and what these called; and the lines of a step."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadeval.data.columns import Column, Columns
from loadeval.data.lines import CodeSamples
from loadeval.data.run import Run
from loadeval.estimate.stats import SIGMAS, Estimate
from loadeval.estimate.steady import Mask, closed_steps, once_per_run

CALLS = " > "
"""Stands between a line of code and what it calls, or is blocked in."""
Looks = list[tuple[str, str, str, float]]
"""Each look at a worker: running, blocked or in calls; at which line, in what of it; its share."""
Shares = defaultdict[str, float]


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A function that workers were often seen in: its share of fetching and collating.

    `place` is its line that they were seen in most, `data.py:31 __getitem__`, and `leaf` the
    function of a library that it mostly called, or "". `blocked_share` is the part of `share` in
    which it was blocked, and `blocked_in` where, as the kernel names it; "" if unknown.
    """

    place: str
    leaf: str
    share: float
    blocked_share: float
    blocked_in: str

    @property
    def function(self) -> str:
        """The function alone."""
        return self.place.partition(" ")[2]

    @property
    def name(self) -> str:
        """`place`, and behind it `leaf` where there is one."""
        return f"{self.place}{CALLS}{self.leaf}" if self.leaf else self.place


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A function of a library that workers were in: its share of fetching and collating.

    `function` has its module, `json.loads`; `place` is the line of the program that calls it most.
    """

    function: str
    place: str
    share: float

    @property
    def name(self) -> str:
        """The line, and behind it the function."""
        return f"{self.place}{CALLS}{self.function}"


def looks(run: Run, fetch_ns: float, collate_ns: float) -> Looks:
    """The looks at workers while they loaded, which took them so long.

    Clocks tell how long each stage takes. Looks alone do not: a thread that gives up Python's lock
    is seen more often than one that keeps it. All looks count the same where stages are not known.
    """
    took_ns = {"fetch": fetch_ns, "collate": collate_ns}
    code = [each for each in run.code if each.stage in (None, *took_ns)]
    # Where each batch is a worker's first of an epoch, its lines are those of any batch.
    return _looks(code or [each for each in run.code if each.stage == "start"], took_ns)


def _looks(code: Sequence[CodeSamples], took_ns: Mapping[str, float]) -> Looks:
    counts, total_ns = Counter[str | None](), sum(took_ns.values())
    for samples in code:
        counts[samples.stage] += sum((*samples.running.values(), *samples.blocked.values()))
    total, seen = max(counts.total(), 1), Looks()
    for samples in code:
        stage_ns, of_stage = took_ns.get(samples.stage or ""), counts[samples.stage]
        each = 1 / total
        if stage_ns is not None and of_stage and total_ns:
            each = stage_ns / total_ns / of_stage
        for kind in ("running", "blocked", "calls"):
            for spot, count in getattr(samples, kind).items():
                place, _, more = spot.partition(CALLS)
                seen.append((kind, place, more, count * each))
    return seen


def code_lines(seen: Looks) -> tuple[CodeLine, ...]:
    """The functions that workers were seen in, the most frequent first."""
    functions = defaultdict[tuple[str, str], defaultdict[str, Shares]](
        lambda: defaultdict(lambda: Shares(float))
    )
    for kind, place, more, share in seen:
        if kind != "calls":
            where, _, function = place.partition(" ")
            shares = functions[where.rpartition(":")[0], function]
            shares["lines"][place] += share
            shares[kind][more] += share
    lines = [
        CodeLine(
            place=_most_common(shares["lines"]),
            leaf=_most_common(shares["running"]),
            share=sum(shares["lines"].values()),
            blocked_share=sum(shares["blocked"].values(), 0.0),
            blocked_in=_most_common(shares["blocked"]),
        )
        for shares in functions.values()
    ]
    return tuple(sorted(lines, key=lambda line: -line.share))


def library_calls(seen: Looks) -> tuple[LibraryCall, ...]:
    """The functions that the program's lines called, the most frequent first."""
    functions = defaultdict[str, Shares](lambda: Shares(float))
    for kind, place, function, share in seen:
        if kind == "calls":
            functions[function][place] += share
    calls = [
        LibraryCall(function, _most_common(places), sum(places.values()))
        for function, places in functions.items()
    ]
    return tuple(sorted(calls, key=lambda call: -call.share))


def _most_common(shares: Shares) -> str:
    return max(shares, key=shares.__getitem__, default="")


def seen_at(run: Run, stage: Literal["start", "end"]) -> tuple[CodeLine | None, LibraryCall | None]:
    """The line that workers were seen at most as epochs start, or end, and what was called most."""
    seen = _looks([each for each in run.code if each.stage == stage], {})
    return next(iter(code_lines(seen)), None), next(iter(library_calls(seen)), None)


# The lines of a step


Along = Literal["run", "epoch"]
FEWEST_LOOKS = 20
"""Fewer say little of a line's share: a tenth of them may be a third of it, or none."""


def along_of(run: Run, along: Along) -> Column:
    """Where each step is along the run, in nanoseconds, or along its epoch, in batches."""
    steps = run.steps
    return steps.batch if along == "epoch" else steps.request_ns + steps.wait_ns


@once_per_run
def looks_at_steps(run: Run) -> Columns:
    """Each look at the training thread in a step that is known: the row of the `step`.

    `place` is `FOLDER/FILE:LINE FUNCTION`, `call` the function that this line calls, or "", and
    `calling` is `FUNCTION > CALL`.
    """
    begun_ns, closed, rows = along_of(run, "run"), closed_steps(run), []
    for each in run.code:
        step = int(np.searchsorted(begun_ns, each.time_ns or 0, side="right")) - 1
        if each.stage == "step" and step >= 0 and closed[step]:
            place, _, call = next(iter({**each.calls, **each.running}), "").partition(CALLS)
            function = place.partition(" ")[2]
            calling = f"{function}{CALLS}{call}" if call else function
            rows.append((step, place, call, function, calling))
    return Columns.of_rows(("step", "place", "call", "function", "calling"), rows)


def first_and_last_ns(run: Run, own: Mask, along: Along = "run") -> tuple[Estimate, Estimate]:
    """How long a step is in lines that these looks found, in the first third of all and the last.

    It is their share of the looks in that third, with what chance makes of it, of the mean step.
    """
    places = along_of(run, along)
    at, closed = places[looks_at_steps(run).step], closed_steps(run)
    times_ns = []
    for third in np.array_split(np.argsort(at, kind="stable"), 3)[::2]:
        is_there = (at[third].min() <= places) & (places <= at[third].max()) & closed
        step_ns, count = float(run.steps.step_ns[is_there].mean()), len(third)
        part, likely = float(own[third].mean()), (own[third].sum() + 1) / (count + 2)
        error = SIGMAS * math.sqrt(likely * (1 - likely) / count)
        times_ns.append(Estimate(part, max(part - error, 0), min(part + error, 1)) * step_ns)
    return times_ns[0], times_ns[1]


@once_per_run
def step_lines(run: Run) -> Columns:
    """The lines of a step, a row each, the longest first.

    `place` is `FOLDER/FILE:LINE FUNCTION`, and `call` the function that this line was seen to call
    most, or "". `share` is the line's part of all steps, and `first_ns` and `last_ns` are its time
    of a step in the first and in the last third of the looks along the run. No rows where there are
    too few looks.
    """
    seen, rows = looks_at_steps(run), []
    places = Counter(seen.place.tolist()).most_common() if len(seen) >= FEWEST_LOOKS else []
    for place, count in places:
        own = seen.place == place
        ((call, _),) = Counter(seen.call[own].tolist()).most_common(1)
        times_ns = (each.value for each in first_and_last_ns(run, own))
        rows.append((place, call, count / len(seen), *times_ns))
    return Columns.of_rows(("place", "call", "share", "first_ns", "last_ns"), rows)

"""Where a step goes: the lines of the program in which the training thread was seen."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

import numpy as np

from loadeval.data.columns import Column, Columns
from loadeval.data.run import Run
from loadeval.estimate.stats import SIGMAS, Estimate
from loadeval.estimate.steady import Mask, closed_steps, once_per_run
from loadeval.inside.stages import CALLS

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
        step_ns, looks = float(run.steps.step_ns[is_there].mean()), len(third)
        part, likely = float(own[third].mean()), (own[third].sum() + 1) / (looks + 2)
        error = SIGMAS * math.sqrt(likely * (1 - likely) / looks)
        times_ns.append(Estimate(part, max(part - error, 0), min(part + error, 1)) * step_ns)
    return times_ns[0], times_ns[1]


@once_per_run
def step_lines(run: Run) -> Columns:
    """The lines of a step, a row each, the longest first.

    `place` and `call` are as in looks, the call that is seen most; `share` is the line's part of
    all steps, and `first_ns` and `last_ns` are its time of a step in the first and in the last
    third of the looks along the run. No rows where there are too few looks.
    """
    looks, rows = looks_at_steps(run), []
    places = Counter(looks.place.tolist()).most_common() if len(looks) >= FEWEST_LOOKS else []
    for place, count in places:
        own = looks.place == place
        ((call, _),) = Counter(looks.call[own].tolist()).most_common(1)
        times_ns = (each.value for each in first_and_last_ns(run, own))
        rows.append((place, call, count / len(looks), *times_ns))
    return Columns.of_rows(("place", "call", "share", "first_ns", "last_ns"), rows)

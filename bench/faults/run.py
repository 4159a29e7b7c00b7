"""Seconds per batch of each program, faulty, healthy and fixed: the fault is there, the fix works.

Without options nothing of loadeval's runs. With --evaluate each program is diagnosed once, and then
run once by itself, faulty and fixed: what was predicted stands beside what was measured. A healthy
twin in which something of 5% or more is found runs by itself too: that may be true of it. Exit
status 1 when a fault costs too little, a twin or a fix too much, or, with --evaluate, when the
first finding is not the cause.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch

from bench.faults.evaluation import is_named, is_nothing_found, measured
from bench.tables import in_words
from bench.zoo.catalogue import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.judge import Said
    from bench.zoo.programs import Program, Training

CPUS = len(os.sched_getaffinity(0))
TURNS = 3
STEPS = 50
LEAST_LOSS = 0.25
HEALTHY_LOSS = 0.05


def paces_s(make: Callable[[Path], Training]) -> tuple[float, float, float]:
    """Seconds per step alone and per batch of a training, and seconds in all.

    Of several epochs, which all have as many batches, a batch is one of whole epochs with their
    starts, from the first batch of the first epoch to that of the last; of one epoch the wait for
    its first batch is left out.
    """
    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        training = make(Path(folder))
        try:
            step_s = min(taken_s(training.step, STEPS) for _ in range(2))
            came_s = []
            for batch in training.batches():
                came_s.append(time.perf_counter())
                training.step(batch)
            ends_s = [*came_s, time.perf_counter()]
            count = len(came_s)
            if training.epochs > 1:
                count -= count // training.epochs
            batch_s = (ends_s[count] - ends_s[0]) / count
        finally:
            training.close()
    return step_s, batch_s, time.perf_counter() - began


def taken_s(step: Callable[[None], None], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        step(None)
    return (time.perf_counter() - began) / times


def check(program: Program, turns: int) -> bool:
    """Print a line; whether the program is as it should be."""
    variants = {"faulty": program.faulty, "healthy": program.healthy}
    if program.fixed is not None:
        variants["fixed"] = program.fixed
    steps_s, batches_s, longest_s = [], defaultdict(list), 0.0
    for _ in range(turns):
        for name, make in variants.items():
            step_s, batch_s, all_s = paces_s(make)
            if name == "healthy":  # a fault may slow down every step, however a batch comes
                steps_s.append(step_s)
            batches_s[name].append(batch_s)
            longest_s = max(longest_s, all_s)
    # The fastest turns: what else runs on the machine only makes them slower.
    step_s, fastest = min(steps_s), {name: min(times_s) for name, times_s in batches_s.items()}
    losses = {name: 1 - step_s / batch_s for name, batch_s in fastest.items()}
    wrong = [
        *(["no fault"] if program.costs_time and losses["faulty"] < LEAST_LOSS else []),
        *(["not healthy"] if losses["healthy"] > HEALTHY_LOSS else []),
        *(["not fixed"] if fastest.get("fixed", 0.0) > 0.9 * fastest["faulty"] else []),
    ]
    figures = "  ".join(
        f"{name} {1e3 * fastest[name]:6.2f} ms ({losses[name]:4.0%})" for name in fastest
    )
    print(
        f"{program.name:50}  step {1e3 * step_s:5.2f} ms  {figures}  "
        f"{fastest['faulty'] / fastest['healthy']:.2f} x  {longest_s:.1f} s  "
        f"{', '.join(wrong) or 'as it should be'}",
        flush=True,
    )
    return not wrong


def evaluate(program: Program, silent: dict[str, bool], blamed: list[str]) -> bool:
    """Print what loadeval says of the faulty and of the healthy program; whether it is right.

    In `silent` each rule that was asked is True until it finds something first. The name is added
    to `blamed` where something is found in the healthy twin, which by itself loses little.
    """
    with TemporaryDirectory() as folder:
        find = partial(measured, program)
        said = find(program.faulty, Path(folder) / "faulty")
        findings = said.findings
        is_twin_healthy = program.cpus <= CPUS
        healthy = (
            find(program.healthy, Path(folder) / "healthy").findings if is_twin_healthy else ()
        )
    right = is_named(program, findings)
    print(f"{program.name} ({program.cause}): {'right' if right else 'wrong'}", flush=True)
    for finding in findings:
        print(f"  {finding.rule}, {finding.cost_in_words}: {finding.says}", flush=True)
    if not is_nothing_found(healthy):
        costs = "; ".join(f"{finding.rule}, {finding.cost_in_words}" for finding in healthy)
        step_s, batch_s, _ = paces_s(program.healthy)
        loss = 1 - step_s / batch_s
        print(f"  in the healthy twin: {costs}; by itself it loses {loss:.0%}", flush=True)
        if loss <= HEALTHY_LOSS:
            blamed.append(program.name)
    for rule in said.rules:
        silent.setdefault(rule, True)
    if not findings:
        return right
    silent[findings[0].rule] = False
    measurement = "not measured"  # the twin lacks CPUs
    if program.fixed is not None or is_twin_healthy:
        _, faulty_s, _ = paces_s(program.faulty)
        _, fixed_s, _ = paces_s(program.fixed or program.healthy)
        change = "advice" if program.fixed else "twin"
        measurement = f"the {change} was {faulty_s / fixed_s:.2f}x as fast"
    print(f"  {findings[0].rule}: {promised(said, program.follows)}; {measurement}", flush=True)
    return right


def promised(said: Said, follows: str = "") -> str:
    """The speed-up without the first finding, and by what it tells to do, or what `follows` says.

    That is predicted with all that comes before it in the list of what to do.
    """
    first = said.findings[0]
    gone = first.speedup_without
    without = "not known" if gone is None else f"{gone:.2f}x"
    for action in said.actions:
        if first.rule in action.findings and follows in action.says:
            gain = "no gain predicted" if action.speedup is None else in_words(action.speedup)
            return f"without it {without}, {action.says}: {gain}"
    return f"without it {without}, nothing to do"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all programs by default")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--evaluate", action="store_true", help="print what loadeval finds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = {program.name: program for program in PROGRAMS}
    if not known.keys() >= set(options.names):
        parser.error(f"expected names among {', '.join(known)}; got {', '.join(options.names)}")
    chosen = [known[name] for name in options.names or known]
    if options.evaluate and not options.names:  # a leak takes a minute to see
        chosen = [each for each in chosen if each.costs_time and each.fault_cpus <= CPUS]
    silent: dict[str, bool] = {}
    blamed: list[str] = []
    right = [
        evaluate(each, silent, blamed) if options.evaluate else check(each, options.turns)
        for each in chosen
    ]
    if options.evaluate and not options.names:
        never = ", ".join(sorted(rule for rule, is_silent in silent.items() if is_silent))
        print(f"found first in no program: {never or 'none'}", flush=True)
    if options.evaluate:
        print(f"found in healthy twins: {', '.join(blamed) or 'nothing'}", flush=True)
    print(f"{sum(right)} of {len(right)}", flush=True)
    return 0 if all(right) else 1


if __name__ == "__main__":
    raise SystemExit(main())

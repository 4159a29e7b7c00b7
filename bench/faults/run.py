"""What is found first in each planted program, and what following the advice brings.

Each program is diagnosed once, and then run once by itself, faulty and fixed: what was predicted
stands beside what was measured. A healthy twin in which something of 5% or more is found runs by
itself too: that may be true of it. Exit status 1 when a first finding is not the cause.

With --alone nothing of loadeval's runs: it is 1 when a fault costs too little, a twin loses too
much, or a fix brings too little.
"""

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bench.judge import Said, compared
from bench.tables import in_words, parser_of
from bench.zoo.catalogue import PROGRAMS
from bench.zoo.programs import Program

CPUS = len(os.sched_getaffinity(0))
STEPS = 50
MATTERS, LEAST_LOSS = 0.05, 0.25
"""Of the time."""
TURNS = 3
ALSO_RIGHT = {
    "slow transform": {"slow fetch"},
    "slow fetch": {"slow transform"},
    "waiting": {"slow fetch", "slow transform"},
    "stalls": {"shallow queue", "slow fetch", "data format"},
    "slow samples": {"shallow queue"},
}
"""Other findings that name the same thing to change, as `Program.named` checks."""


def paces_s(program: Program, variant: str) -> tuple[float, float]:
    """Seconds per step alone, and per batch of a training.

    Of several epochs, which all have as many batches, a batch is one of whole epochs with their
    starts, from the first batch of the first epoch to that of the last; of one epoch the wait for
    its first batch is left out.
    """
    with TemporaryDirectory() as folder:
        training = program.training(variant, Path(folder))
        try:
            steps_s = []
            for _ in range(2):
                began_s = time.perf_counter()
                for _ in range(STEPS):
                    training.step(None)
                steps_s.append((time.perf_counter() - began_s) / STEPS)
            came_s = []
            for batch in training.batches():
                came_s.append(time.perf_counter())
                training.step(batch)
            ends_s = [*came_s, time.perf_counter()]
            count = len(came_s)
            if training.epochs > 1:
                count -= count // training.epochs
            return min(steps_s), (ends_s[count] - ends_s[0]) / count
        finally:
            training.close()


def is_sound(name: str) -> bool:
    """Print what a program loses by itself; whether the fault is there, and the fix works."""
    program = PROGRAMS[name]
    variants = ("faulty", "healthy", *(() if program.fixed is None else ("fixed",)))
    paces = {each: [paces_s(program, each) for _ in range(TURNS)] for each in variants}
    # The fastest turns: what else runs on the machine only makes them slower. Steps are those of
    # the healthy twin, for a fault may slow down every step, however a batch comes.
    step_s = min(step_s for step_s, _ in paces["healthy"])
    batch_s = {each: min(batch_s for _, batch_s in turns) for each, turns in paces.items()}
    losses = {each: 1 - step_s / fastest_s for each, fastest_s in batch_s.items()}
    checks = {
        "no fault": losses["faulty"] < LEAST_LOSS,
        "not healthy": losses["healthy"] > MATTERS and program.cpus <= CPUS,
        "not fixed": batch_s.get("fixed", 0.0) > 0.9 * batch_s["faulty"],
    }
    wrong = [what for what, holds in checks.items() if holds]
    figures = (f"{each} {1e3 * batch_s[each]:.2f} ms ({losses[each]:.0%})" for each in variants)
    said = ", ".join(wrong) or "as it should be"
    print(f"{name}: step {1e3 * step_s:.2f} ms, {', '.join(figures)}: {said}", flush=True)
    return not wrong


def diagnosed(program: Program, variant: str) -> Said:
    stages = None if program.looks_inside else False
    with TemporaryDirectory() as folder:
        training = program.training(variant, Path(folder))
        return compared(training.logged(Path(folder) / "run.jsonl", seed=0, stages=stages))


def evaluate(name: str, silent: dict[str, bool], blamed: list[str]) -> bool:
    """Print what loadeval says of the faulty and of the healthy program; whether it is right.

    In `silent` each rule that was asked is True until it finds something first. The name is added
    to `blamed` where something is found in the healthy twin, which by itself loses little.
    """
    program = PROGRAMS[name]
    said = diagnosed(program, "faulty")
    first = next(iter(said.findings), None)
    rules = {program.cause, *ALSO_RIGHT.get(program.cause, ())}
    right = (
        first is not None and first.rule in rules and program.named.lower() in first.text.lower()
    )
    print(f"{name} ({program.cause}): {'right' if right else 'wrong'}", flush=True)
    for finding in said.findings:
        print(f"  {finding.rule}, {finding.cost_in_words}: {finding.says}", flush=True)
    has_twin = program.cpus <= CPUS
    healthy = diagnosed(program, "healthy").findings if has_twin else ()
    if any((finding.cost or 0.0) >= MATTERS for finding in healthy):
        costs = "; ".join(f"{finding.rule}, {finding.cost_in_words}" for finding in healthy)
        step_s, batch_s = paces_s(program, "healthy")
        loss = 1 - step_s / batch_s
        print(f"  in the healthy twin: {costs}; by itself it loses {loss:.0%}", flush=True)
        if loss <= MATTERS:
            blamed.append(name)
    for rule in said.rules:
        silent.setdefault(rule, True)
    if first is None:
        return right
    silent[first.rule] = False
    measured = "not measured"  # the twin lacks CPUs
    if program.fixed is not None or has_twin:
        variant = "healthy" if program.fixed is None else "fixed"
        gain = paces_s(program, "faulty")[1] / paces_s(program, variant)[1]
        measured = f"the {'twin' if program.fixed is None else 'advice'} was {gain:.2f}x as fast"
    print(f"  {first.rule}: {promised(said, program.follows)}; {measured}", flush=True)
    return right


def promised(said: Said, follows: str) -> str:
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
    parser = parser_of(__doc__, PROGRAMS)
    parser.add_argument("--alone", action="store_true", help="run the programs without loadeval")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shown = [name for name, each in PROGRAMS.items() if each.fault_cpus <= CPUS]
    silent: dict[str, bool] = {}
    blamed: list[str] = []
    if options.alone:
        right = [is_sound(name) for name in options.only or shown]
    else:
        right = [evaluate(name, silent, blamed) for name in options.only or shown]
        never = ", ".join(sorted(rule for rule, is_silent in silent.items() if is_silent))
        print(f"found first in none of them: {never or 'none'}")
        print(f"found in healthy twins: {', '.join(blamed) or 'nothing'}")
    print(f"{sum(right)} of {len(right)}")
    return 0 if all(right) else 1


if __name__ == "__main__":
    raise SystemExit(main())

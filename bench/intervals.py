"""How often intervals contain the truth, and how wide they are: simulated runs, without a clock.

Of each kind of loader 93 to 97% of the intervals shall contain the true speed-up of its steady
state, at least 92% where stalls come in one of 37 batches and three or more were measured. The
median interval shall be at most 1.3 times as wide as that of the method before this one. Exits with
1 otherwise. The width is the median of the logarithm of high over low.
"""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.tables import parser_of
from loadeval.data.columns import UNKNOWN, Columns
from loadeval.data.run import Run
from loadeval.estimate.gap import gap
from tests.builder import make_header

Times = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Times]

LEAST, MOST, LEAST_OF_STALLS = 0.93, 0.97, 0.92
FEWEST_STALLS = 3
STALL = 5
"""A wait over so many steps is a stall."""
STEP_NS = 10_000_000
IDEAL_WARMUP = 3
STALLS = "stalls"


class Case(NamedTuple):
    """Loading and step times, drawn as (runs, batches) with steps of 1 on average.

    `depth` batches are kept ready by the workers; 0 is a loader without workers. Steps are as long
    as their batches are large, whose sizes vary by `sizes`.
    """

    kind: str
    load: Draw
    step: Draw
    depth: int = 0
    sizes: float = 0.0


def normal(mean: float) -> Draw:
    """A clock and a scheduler that differ by a per cent."""
    return lambda rng, runs, batches: mean * rng.normal(1.0, 0.01, (runs, batches))


def gamma(mean: float, shape: float) -> Draw:
    return lambda rng, runs, batches: rng.gamma(shape, mean / shape, (runs, batches))


def pareto(mean: float, shape: float) -> Draw:
    least = mean * (shape - 1) / shape
    return lambda rng, runs, batches: least * (rng.pareto(shape, (runs, batches)) + 1)


def stalling(usual: float, stall: float, often: float) -> Draw:
    def draw(rng: np.random.Generator, runs: int, batches: int) -> Times:
        return np.where(rng.random((runs, batches)) < often, stall, usual)

    return draw


NONE, SOME, TAIL, SIZES = "without workers", "with workers", "heavy tails", "steps by batch"
CASES = {
    "steady": Case(NONE, normal(1.4), normal(1.0)),
    "gamma": Case(NONE, gamma(1.0, 2.0), gamma(1.0, 4.0)),
    "bursts": Case(NONE, stalling(0.05, 4.0, 0.1), gamma(1.0, 20.0)),
    "slower": Case(SOME, gamma(1.5, 2.0), gamma(1.0, 4.0), 2),
    "a little faster": Case(SOME, gamma(0.95, 10.0), gamma(1.0, 10.0), 4),
    "hidden": Case(SOME, gamma(0.4, 10.0), gamma(1.0, 20.0), 4),
    "Pareto": Case(TAIL, pareto(1.0, 2.5), gamma(1.0, 20.0)),
    "Pareto, workers": Case(TAIL, pareto(1.2, 2.5), gamma(1.0, 20.0), 4),
    "sizes": Case(SIZES, gamma(0.6, 10.0), gamma(1.0, 100.0), sizes=0.4),
    "sizes, workers": Case(SIZES, gamma(0.95, 10.0), gamma(1.0, 100.0), 4, sizes=0.4),
    "stalls": Case(STALLS, stalling(0.05, 20.0, 1 / 37), gamma(1.0, 20.0)),
    "stalls, workers": Case(STALLS, stalling(0.25, 30.0, 1 / 37), gamma(1.0, 20.0), 4),
}
PLANS: dict[str, Sequence[tuple[int, int]]] = {
    "two": [(72, 12)] * 2,
    "four": [(32, 8)] * 2 + [(64, 8)] * 2,
    "six": [(24, 8)] * 6,
    "eight": [(24, 8)] * 8,
}
"""Counted real and ideal batches of each pair."""


WIDEST = 1.3
BEFORE = {
    "steady": (0.0095, 0.0081, 0.0067, 0.0055),
    "gamma": (0.426, 0.383, 0.327, 0.286),
    "bursts": (0.327, 0.281, 0.266, 0.236),
    "slower": (0.516, 0.439, 0.379, 0.326),
    "a little faster": (0.309, 0.261, 0.219, 0.191),
    "hidden": (0.218, 0.189, 0.158, 0.135),
    "Pareto": (0.212, 0.189, 0.164, 0.145),
    "Pareto, workers": (0.319, 0.268, 0.266, 0.237),
    "sizes": (0.113, 0.101, 0.096, 0.083),
    "sizes, workers": (0.12, 0.105, 0.104, 0.09),
    "stalls": (0.724, 0.612, 0.653, 0.56),
    "stalls, workers": (0.933, 0.768, 0.863, 0.725),
}
"""The median widths of the logarithm by the method before, one for each plan, of 400 runs."""


def real_iterations(load: Times, step: Times, depth: int) -> Times:
    """The iteration of each batch, of a loader that keeps so many ready and begins with none.

    With none it loads on request; otherwise a background worker loads while there is room.
    """
    if not depth:
        return load + step
    now = finished = np.zeros(len(load))
    delivered: list[Times] = []
    iterations = np.empty_like(load)
    for k in range(load.shape[1]):
        room = delivered[k - depth] if k >= depth else finished
        finished = np.maximum(finished, room) + load[:, k]
        delivered.append(np.maximum(now, finished))
        iterations[:, k] = delivered[k] + step[:, k] - now
        now = delivered[k] + step[:, k]
    return iterations


def drawn(case: Case, rng: np.random.Generator, runs: int, batches: int) -> tuple[Times, ...]:
    """Loading times, and steps, which follow the sizes of their batches."""
    load, step = case.load(rng, runs, batches), case.step(rng, runs, batches)
    sizes = np.maximum(rng.normal(1.0, case.sizes, (runs, batches)), 0.1)
    return load, step * sizes


def true_speedup(case: Case) -> float:
    """That of 200 runs of 3,000 batches, without their beginning."""
    load, step = drawn(case, np.random.default_rng(99), 200, 3_000)
    iterations = real_iterations(load, step, case.depth)
    return float(iterations[:, 100:].sum() / step[:, 100:].sum())


def simulated(case: Case, plan: Sequence[tuple[int, int]], runs: int) -> list[Run]:
    """Alternating runs of these pairs, each block after its warm-up.

    Of every two pairs the first has its arms in random order, and the second in the other.
    """
    rng, warmup = np.random.default_rng(7), max(case.depth + 1, IDEAL_WARMUP)
    total = sum(real + ideal + warmup + IDEAL_WARMUP for real, ideal in plan)
    load, step = drawn(case, rng, runs, total)
    wait, arm, pairs = (np.zeros((runs, total)) for _ in range(3))
    pairs -= 1
    first, begin = np.empty(runs, dtype=np.bool_), 0
    for pair, (real, ideal) in enumerate(plan):
        first = rng.random(runs) < 0.5 if pair % 2 == 0 else ~first
        lengths = real + warmup, ideal + IDEAL_WARMUP
        for is_first in (True, False):
            chosen = np.flatnonzero(first == is_first)[:, None]
            at_real = begin + np.arange(lengths[0]) + (0 if is_first else lengths[1])
            at_ideal = begin + np.arange(lengths[1]) + (lengths[0] if is_first else 0)
            steps = step[chosen, at_real]
            wait[chosen, at_real] = (
                real_iterations(load[chosen, at_real], steps, case.depth) - steps
            )
            pairs[chosen, at_real[warmup:]] = pairs[chosen, at_ideal[IDEAL_WARMUP:]] = pair
            arm[chosen, at_ideal] = 1
        begin += sum(lengths)
    header = make_header(workers=case.depth, prefetch_depth=case.depth)
    same = {name: np.zeros(total, np.int64) for name in ("epoch", "instrumented")}
    same |= {name: np.full(total, UNKNOWN) for name in ("gpu_idle_ns", "gpu_step_ns", "nbytes")}
    same |= {"samples": np.full(total, 4), "batch": np.arange(total)}
    made = []
    for number in range(runs):
        wait_ns, step_ns = (
            np.rint(np.maximum(times[number], 0.0) * STEP_NS).astype(np.int64)
            for times in (wait, step)
        )
        columns = {
            "arm": arm[number].astype(np.int64),
            "pair": pairs[number].astype(np.int64),
            "request_ns": np.cumsum(wait_ns + step_ns) - wait_ns - step_ns,
            "wait_ns": wait_ns,
            "step_ns": step_ns,
        }
        made.append(Run(header, Columns({**same, **columns})))
    return made


def examined(name: str, plan: str, runs: int) -> tuple[int, int, float]:
    """How many intervals there are, how many contain the truth, and their median width."""
    case, widths, covered = CASES[name], list[float](), 0
    true = true_speedup(case)
    for run in simulated(case, PLANS[plan], runs):
        counted = (run.steps.pair != UNKNOWN) & (run.steps.arm == 0)
        stalls = int((run.steps.wait_ns[counted] > STALL * STEP_NS).sum())
        if case.kind == STALLS and stalls < FEWEST_STALLS:
            continue
        speedup = gap(run).steady_speedup
        if speedup is None or speedup.low is None:
            raise ValueError(f"{name}, {plan}: no interval")
        low, high = speedup.bounds
        covered += low <= true <= high
        widths.append(float(np.log(high / low)))
    return len(widths), covered, float(np.median(widths))


def main() -> int:
    parser = parser_of(__doc__, CASES)
    parser.add_argument("--runs", type=int, default=400)
    options = parser.parse_args()
    counts: dict[str, list[int]] = {}
    ratios: list[float] = []
    for name in options.only or CASES:
        for plan, before in zip(PLANS, BEFORE[name], strict=True):
            count, covered, width = examined(name, plan, options.runs)
            total = counts.setdefault(CASES[name].kind, [0, 0])
            total[0] += count
            total[1] += covered
            ratios.append(width / before)
            print(f"{name:16} {plan:>6} covered {covered / count:6.1%}, width {width:.3f}")
    failed = False
    for kind, (count, covered) in counts.items():
        share = covered / count
        is_enough = share >= LEAST_OF_STALLS if kind == STALLS else LEAST <= share <= MOST
        failed |= not is_enough
        print(f"{kind}: {share:.1%} of {count:,}{'' if is_enough else ', which is not right'}")
    ratio = float(np.median(ratios))
    print(f"median width: {ratio:.2f} times that before")
    return int(failed or ratio > WIDEST)


if __name__ == "__main__":
    sys.exit(main())

"""Speed-up if loading were free: the truth, our alternating run, and our peers, case by case.

The truth is measured without any tool: a bare loop over whole epochs of the loader, and the same
steps over batches that were in memory beforehand, with no loader alive; three times, between the
runs under test. Exit status 1 when ours is wrong in a case.
"""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils._pytree import tree_map

from bench.judge import Said, compared, page_faults
from bench.tables import in_words, parser_of, show
from bench.zoo.truth import Case, Step, cases
from loadeval import LoaderEvaluator

UNSETTLED, WARM_S = 5, 0.25
"""The shortest warm-up, in batches and seconds: until CPU caches and allocator have settled."""
ENOUGH = 100
"""Batches in memory at most: steps vary less than loading does."""
CACHED = 20
CLOSE, OFF = 0.05, 0.10
LONGEST = 1.5
"""Our run over a plain one of as many batches."""
FEW_FAULTS, FAULTS_SHARE = 50, 0.10
"""Page faults per batch by which the arms may differ: so many, or that share."""
CLASSES, BOUNDS = ("not", "moderately", "highly"), (0.05, 0.20)
"""Words of a verdict, and the lost shares between them."""
HEADS = (
    *("case", "what", "truth", "loadeval", "verdict", "two runs", "DALI", "SPDL"),
    *("time", "faults", "right"),
)


@dataclass
class Truth:
    """Seconds per batch, one entry for each time that both paces were measured."""

    real_s: list[float] = field(default_factory=list)
    ideal_s: list[float] = field(default_factory=list)

    def again(self, case: Case) -> None:
        """Measure both paces once more: whole epochs of the loader, and memory's steady state."""
        epochs = case.truth_epochs or case.epochs
        with steps(case, case.batches, epochs) as step:
            real_s = epochs_s(case.loader(case.batches), step, epochs)
        self.real_s.append(real_s / (epochs * case.batches))
        count = min(case.batches, ENOUGH)
        kept = outside_heap(map(case.content, range(count)))
        warm_up, began_s = case.step(count), time.perf_counter()
        for number, batch in enumerate(served(kept)):
            if number >= UNSETTLED and time.perf_counter() - began_s >= WARM_S:
                break
            warm_up(batch)
        with steps(case, count) as step:
            self.ideal_s.append(total_s(served(kept), step) / count)

    @property
    def value(self) -> float:
        return sum(self.real_s) / sum(self.ideal_s)

    @property
    def spread(self) -> tuple[float, float]:
        ratios = [real / ideal for real, ideal in zip(self.real_s, self.ideal_s, strict=True)]
        return min(ratios), max(ratios)

    @property
    def of_two_runs(self) -> float:
        """What one run with the loader and one over batches in memory say, made by hand."""
        return self.real_s[0] / self.ideal_s[0]


def outside_heap(batches: Iterable[Any]) -> list[Any]:
    """Copies in mapped memory, one of each tensor.

    On the C heap they would change what a step's own allocations find there, and so how many page
    faults it meets.
    """
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def copied(leaf: torch.Tensor) -> torch.Tensor:
        if id(leaf) not in copies:
            region = torch.frombuffer(mmap.mmap(-1, leaf.nbytes), dtype=leaf.dtype)
            # The original is held too, or another could get its id.
            copies[id(leaf)] = leaf, region.reshape(leaf.shape).copy_(leaf)
        return copies[id(leaf)][1]

    return [tree_map(copied, batch) for batch in batches]


def served(kept: list[Any]) -> Iterator[Any]:
    """Each batch, its dictionary anew: what a step puts in there goes when the step is over."""
    for batch in kept:
        yield dict(batch) if isinstance(batch, dict) else batch


def total_s(batches: Iterable[Any], step: Step) -> float:
    began = time.perf_counter()
    for batch in batches:
        step(batch)
        del batch
    return time.perf_counter() - began


def epochs_s(loader: Any, step: Step, epochs: int) -> float:
    """Seconds of whole epochs, from each one's `iter()` to its StopIteration."""
    return sum(total_s(loader, step) for _ in range(epochs))


@contextmanager
def steps(case: Case, batches: int, runs: int = 1) -> Iterator[Step]:
    """The step of `runs` runs, each of `batches`.

    In a case that drifts it is on one core, which another process shares in the middle third.
    """
    step = case.step(batches)
    if not case.drifts:
        yield step
        return
    before, total, count = os.sched_getaffinity(0), batches * runs, 0
    os.sched_setaffinity(0, {min(before)})  # the burner inherits it
    command = [sys.executable, "-Sc", "while True: pass"]
    with ExitStack() as at_end, ExitStack() as burning:
        at_end.callback(os.sched_setaffinity, 0, before)

        def disturbed(batch: Any) -> None:
            nonlocal count
            if count == total // 3:
                burning.callback(burning.enter_context(subprocess.Popen(command)).kill)
            if count == 2 * total // 3:
                burning.close()
            count += 1
            step(batch)

        yield disturbed


@dataclass(frozen=True)
class Ours:
    """`faults` are page faults of a real and of an ideal batch."""

    said: Said
    elapsed_s: float
    faults: tuple[float | None, float | None]


def alternating(case: Case) -> Ours:
    """Our run: one training loop."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        with (
            LoaderEvaluator(case.loader(case.batches), mode="alternate", log_file=log) as loader,
            steps(case, case.batches, case.epochs) as step,
        ):
            elapsed_s = epochs_s(loader, step, case.epochs)
        return Ours(compared(log), elapsed_s, (page_faults(log, 0), page_faults(log, 1)))


def dali(case: Case) -> float:
    """What DALI's tutorial computes: the total of a log run over that of a replay run."""
    from nvidia.dali.plugin.pytorch import loader_evaluator

    count = min(case.peers_batches, case.batches)
    with steps(case, count, runs=2) as step:
        evaluator = loader_evaluator.LoaderEvaluator
        real_s = total_s(evaluator(case.loader(count), mode="log"), step)
        replay = evaluator(case.loader(count), mode="replay", num_cached_batches=CACHED)
        return real_s / total_s(replay, step)


def spdl(case: Case) -> float:
    """A run's mean iteration over that of a second run, once SPDL serves it from its cache."""
    from spdl.dataloader import CacheDataLoader

    count = min(case.peers_batches, case.batches)
    kept = min(CACHED, count // 2)
    with steps(case, count, runs=2) as step:
        real_s = total_s(case.loader(count), step) / count
        cached = iter(CacheDataLoader(case.loader(count), kept, kept, count))
        total_s(islice(cached, kept), step)
        return real_s / (total_s(cached, step) / (count - kept))


def wrong_with(case: Case, truth: Truth, ours: Ours, time: float) -> list[str]:
    """What is wrong with ours, which took so many times as long as a plain run."""
    speedup, verdict = ours.said.gap.speedup, ours.said.verdict
    if speedup is None or speedup.low is None or speedup.high is None:
        return ["no interval"]
    half_width = (speedup.high - speedup.low) / 2
    inside = speedup.low <= truth.value <= speedup.high
    checks = {
        "misses the truth": not is_near(speedup.value, truth.value, case.close)
        and (case.is_close or not inside),
        "interval misses the truth": case.is_close and not inside,
        "wrong verdict": not named(verdict) & true_classes(*truth.spread),
        "inconclusive": verdict == "inconclusive"
        and is_near(truth.of_two_runs, truth.value, CLOSE),
        "wide": case.widest is not None and half_width >= case.widest * speedup.value,
        "slow": time > LONGEST,
        "page faults": case.faults and not are_alike(*ours.faults),
    }
    return [fault for fault, holds in checks.items() if holds]


def named(verdict: str) -> set[str]:
    """The classes that a verdict leaves open."""
    places = [CLASSES.index(word) for word in verdict.split() if word in CLASSES]
    return set(CLASSES[min(places) : max(places) + 1] if places else CLASSES)


def true_classes(low: float, high: float) -> set[str]:
    """The classes between two speed-ups."""
    first, last = (sum(1 - 1 / speedup >= bound for bound in BOUNDS) for speedup in (low, high))
    return set(CLASSES[first : last + 1])


def are_alike(real: float | None, ideal: float | None) -> bool:
    """Whether a batch meets about as many page faults in both arms, as far as is known."""
    if real is None or ideal is None:
        return False
    return abs(real - ideal) <= max(FEW_FAULTS, FAULTS_SHARE * real)


def is_near(value: float, truth: float, share: float) -> bool:
    return abs(value / truth - 1) <= share


def tried(peer: Callable[[Case], float], case: Case, truth: Truth) -> str:
    """What the peer says, a * where it is off: by a tenth, and outside the truth's spread."""
    try:
        value = peer(case)
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and another run follows
        print(f"{peer.__name__} fails in {case.what}: {error!r}", file=sys.stderr)
        return "-"
    low, high = truth.spread
    is_off = not is_near(value, truth.value, OFF) and not low <= value <= high
    return f"{value:.2f}{'*' if is_off else ''}"


def row_of(name: str, case: Case, peers: list[Callable[[Case], float]]) -> list[str]:
    """The row as text: the truth three times, and ours in between; the last cell is "yes", or why.

    Two plain runs get a * where they are off by a twentieth.
    """
    truth = Truth()
    truth.again(case)
    ours = alternating(case)
    truth.again(case)
    truth.again(case)
    of_peers = [tried(peer, case, truth) for peer in peers] or ["-", "-"]
    low, high = truth.spread
    plain_s = sum(truth.real_s) / len(truth.real_s) * case.batches * case.epochs
    time, by_hand = ours.elapsed_s / plain_s, truth.of_two_runs
    faults = ("-" if count is None else f"{count:.0f}" for count in ours.faults)
    return [
        name,
        case.what,
        f"{truth.value:.2f} [{low:.2f}, {high:.2f}]",
        in_words(ours.said.gap.speedup),
        ours.said.verdict,
        f"{by_hand:.2f}{'' if is_near(by_hand, truth.value, CLOSE) else '*'}",
        *of_peers,
        f"{time:.2f}",
        " / ".join(faults),
        ", ".join(wrong_with(case, truth, ours, time)) or "yes",
    ]


def main() -> int:
    known = cases()
    parser = parser_of(__doc__, known)
    parser.add_argument("--no-peers", action="store_true", help="run neither DALI nor SPDL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    peers = [] if options.no_peers else [dali, spdl]
    rows = show(HEADS, (row_of(name, known[name], peers) for name in options.only or known))
    return int(any(row[-1] != "yes" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())

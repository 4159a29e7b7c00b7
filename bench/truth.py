"""Speed-up if loading were free: the truth, our alternating run, and our peers, case by case.

The truth is measured without any tool: a bare loop over whole epochs of the loader, and the same
steps over batches that were in memory beforehand, with no loader alive; three times, between the
runs under test. Exit status 1 when ours is wrong in a case.
"""

import sys
from collections.abc import Callable

import torch

from bench.tables import in_words, parser_of, show
from bench.truth_runs import Ours, Truth, alternating, dali, spdl
from bench.zoo.truth import Case, cases

CLOSE, OFF = 0.05, 0.10
LONGEST = 1.5
"""Our run over a plain one of as many batches."""
FAULTS_SHARE = 0.10
FEW_FAULTS = 50
CLASSES = ("not", "moderately", "highly")
BOUNDS = (0.05, 0.20)
HEADS = (
    *("case", "what", "truth", "loadeval", "verdict", "two runs", "DALI", "SPDL"),
    *("time", "faults", "right"),
)


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
        "page faults": case.faults and not are_alike(*ours.page_faults),
    }
    return [fault for fault, holds in checks.items() if holds]


def are_alike(real: float | None, ideal: float | None) -> bool:
    """Whether a batch meets about as many page faults in both arms, as far as is known."""
    if real is None or ideal is None:
        return False
    return abs(real - ideal) <= max(FEW_FAULTS, FAULTS_SHARE * real)


def is_near(value: float, truth: float, share: float) -> bool:
    return abs(value / truth - 1) <= share


def named(verdict: str) -> set[str]:
    """The classes that a verdict leaves open."""
    positions = [CLASSES.index(word) for word in verdict.split() if word in CLASSES]
    return set(CLASSES[min(positions) : max(positions) + 1]) if positions else set(CLASSES)


def true_classes(low: float, high: float) -> set[str]:
    """The classes between two speed-ups."""
    first, last = (sum(1 - 1 / speedup >= bound for bound in BOUNDS) for speedup in (low, high))
    return set(CLASSES[first : last + 1])


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
    counts = ["-" if count is None else f"{count:.0f}" for count in ours.page_faults]
    return [
        name,
        case.what,
        f"{truth.value:.2f} [{low:.2f}, {high:.2f}]",
        in_words(ours.said.gap.speedup),
        ours.said.verdict,
        f"{by_hand:.2f}{'' if is_near(by_hand, truth.value, CLOSE) else '*'}",
        *of_peers,
        f"{time:.2f}",
        " / ".join(counts),
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

"""Every sentence that a user reads, made from codes and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.verdict import HIGH_SHARE, MODERATE_SHARE
from loadeval.report.formatting import LONGEST_NAME, printable, shortened, speedup
from loadeval.runlog.model import NOT_RECORDED

if TYPE_CHECKING:
    from loadeval.analysis.growth import Growth
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.intervals import Estimate
    from loadeval.runlog.model import LoaderInfo, Run


NO_FASTER = 1.005
"""A speed-up under this reads 1.00x."""
THRESHOLDS = (
    f"not input-bound under {MODERATE_SHARE:.0%} of the time lost, moderately under "
    f"{HIGH_SHARE:.0%}, highly from there on"
)


def headline(headroom: Headroom) -> str:
    """The finding of a comparison with its interval, in one sentence."""
    verdict = headroom.verdict[0].upper() + headroom.verdict[1:]
    found = headroom.speedup
    if found is None:
        return f"{verdict}: {_unmeasured_side(headroom)}"
    if headroom.verdict == "inconclusive":
        return f"{verdict}: {headroom.reason}"
    pace = "no faster" if found.value < NO_FASTER else f"{speedup(found.value)} as fast"
    return f"{verdict}: training would be {pace} if loading were free{_in_between(found)}"


def _in_between(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" (95% CI {speedup(found.low)} to {speedup(found.high)})"


def described_loader(run: Run) -> str:
    """What served the batches of `run`, in a few words: what is known, and nothing of the rest."""
    loader, cache = run.header.loader, run.header.cache
    if cache is not None:
        return printable(f"{cache.batches} kept batches replayed")
    if loader.backend == NOT_RECORDED:
        return "loader not recorded"
    parts = [shortened(class_name(loader), LONGEST_NAME)]
    for name, value in (
        ("workers", loader.workers),
        ("prefetch depth", loader.prefetch_depth),
        ("batch size", loader.batch_size),
    ):
        parts += [] if value is None else [f"{name} {shortened(str(value), LONGEST_NAME)}"]
    return printable(", ".join(parts))


def class_name(loader: LoaderInfo) -> str:
    """The name of the loader's class, without the module that it is in."""
    return str(loader.backend).rsplit(".", maxsplit=1)[-1]


def _unmeasured_side(headroom: Headroom) -> str:
    if headroom.pairs is not None:
        return headroom.reason
    if headroom.real_ns is None and headroom.ideal_ns is None:
        return "the steady pace of neither run was measured"
    side = "real" if headroom.real_ns is None else "ideal"
    return f"the steady pace of the {side} run was not measured"


def verdict_name(headroom: Headroom) -> str:
    """The verdict in a few words: highly input-bound."""
    return headroom.verdict


def reason(headroom: Headroom) -> str:
    """Why the verdict is concluded: a clause without a full stop."""
    return headroom.reason


def verdict_advice(headroom: Headroom) -> str:
    """What to do about it, in sentences."""
    return headroom.advice


def cautions(headroom: Headroom) -> list[str]:
    """What makes the figures mean less than they seem to, a sentence each."""
    return [headroom.caution] if headroom.caution else []


def not_measured(headroom: Headroom) -> list[str]:
    """What was not measured and why, a sentence each."""
    return list(headroom.not_measured)


def growth_reason(growth: Growth) -> str:
    """How the memory of a subject grows, or why that is not known: a clause."""
    return growth.reason


def growth_advice(growth: Growth) -> str:
    """What to do about it; "" for nothing."""
    return growth.advice

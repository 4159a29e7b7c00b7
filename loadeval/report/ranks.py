"""Runs of the ranks of one distributed training: what all of them say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.report.formatting import LONGEST_NAME, counted, number, printable, share, shortened

if TYPE_CHECKING:
    from loadeval.report.backends import BackendComparison


def ranks_headline(found: BackendComparison) -> str:
    """Their throughput together, and the share lost on those that lose least and most."""
    rates = [one.real.value for one in found.backends if one.real is not None]
    unit = shortened(printable(found.unit), LONGEST_NAME)
    together = f"{counted(len(found.backends), 'rank', 'ranks')} of one training"
    if len(rates) == len(found.backends):
        together += f", {number(sum(rates))} {unit}/s together"
    lost = sorted(one.lost_share.value for one in found.backends if one.lost_share is not None)
    if not lost:
        return f"{together}; what free loading would gain was not measured"
    return f"{together}: {share(lost[0])} to {share(lost[-1])} of their time is lost to loading"

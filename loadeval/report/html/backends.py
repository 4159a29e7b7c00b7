"""Several backends side by side: what each gains, and the differences between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.backends import are_ranks, ranked
from loadeval.report.formatting import LONGEST_NAME, duration, estimated, share, shortened, speedup
from loadeval.report.html.blocks import Heading, Section, Table, Text
from loadeval.report.readings import gpus_of_backends
from loadeval.report.wording import backend_not_measured, backend_verdict, difference_sentence

if TYPE_CHECKING:
    from loadeval.report.html.blocks import Block
    from loadeval.report.html.subject import Subject

HEAD = ("", "if loading were free", "lost to loading", "epoch start", "verdict")


def side_by_side(subject: Subject) -> tuple[Section, ...]:
    """One section where there are several backends, else none."""
    found = subject.backends
    if found is None:
        return ()
    rows = tuple(
        (
            shortened(one.name, LONGEST_NAME),
            estimated(one.speedup, speedup),
            estimated(one.lost_share, share),
            duration(one.epoch_start_ns),
            backend_verdict(one),
        )
        for one in ranked(found.backends)
    )
    blocks: list[Block] = [
        Table("What each would gain, with 95% intervals", HEAD, rows),
    ]
    failures = [f"{one.name} failed: {one.error}" for one in found.backends if one.error]
    for title, said in (
        ("Differences in real throughput", map(difference_sentence, found.differences)),
        ("Failed", failures),
        ("Readings", gpus_of_backends(found.backends)),
        ("Not measured", backend_not_measured(found)),
    ):
        lines = tuple(said)
        if lines:
            blocks += [Heading(title), Text(lines, "list")]
    what = "Ranks" if are_ranks(subject.runs) else "Backends"
    return (Section("backends", f"{what} side by side", tuple(blocks)),)

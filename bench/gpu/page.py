"""docs/gpu.md: which claims held on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.gpu.claims import PARTS
from bench.gpu.results import ERROR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.gpu.claims import Claim
    from bench.gpu.results import Result

HEAD = (
    "# On a GPU\n\n"
    "What loadeval claims on a GPU, and whether it held when it was last measured on one. "
    "`make gpu` measures all of it in under nine minutes where torch finds a CUDA device, and "
    "writes this page; elsewhere each test is skipped, and the page stays as it is.\n\n"
)
NEVER = "None of it was measured on a GPU so far.\n\n"
NEVER_MEASURED = "never measured"


def page(results: Sequence[Result]) -> str:
    """The page of these results, of one run."""
    lines = [_where(results), "| claim | what holds | tolerance | outcome |\n|---|---|---|---|\n"]
    lines += [
        f"| {claim.name} | {claim.text} | {claim.tolerance or '-'} | {outcome(claim, results)} |\n"
        for claim in _claims()
    ]
    for name in (*(claim.name for claim in _claims()), ERROR):
        lines += _details(name, [result for result in results if result.claim == name])
    return HEAD + "".join(lines)


def outcome(claim: Claim, results: Sequence[Result]) -> str:
    """Held, did not hold, or never measured; of how many measurements."""
    held = [
        result.held for result in results if result.claim == claim.name and result.held is not None
    ]
    if not held:
        return NEVER_MEASURED
    return (
        f"held ({len(held)})" if all(held) else f"did not hold ({held.count(False)} of {len(held)})"
    )


def _claims() -> list[Claim]:
    return list(dict.fromkeys(claim for part in PARTS for claim in part.claims))


def _where(results: Sequence[Result]) -> str:
    if not results:
        return NEVER
    last = results[-1]
    versions = ", ".join(f"{name} {version}" for name, version in last.versions.items())
    driver = f"driver {last.driver}" if last.driver else "a driver of unknown version"
    return f"Measured on {last.date}, on one {last.device} with {driver}, {versions}.\n\n"


def _details(name: str, results: Sequence[Result]) -> list[str]:
    if not results:
        return []
    lines = [f"\n## {name[0].upper()}{name[1:]}\n\n"]
    lines.append("| of | expected | measured | 95% CI | |\n|---|---|---|---|---|\n")
    for result in results:
        interval = "" if result.interval is None else "{:.3g} to {:.3g}".format(*result.interval)
        held = {True: "held", False: "**did not hold**", None: "not measured"}[result.held]
        lines.append(
            f"| {result.case} | {result.expected} | {result.measured} | {interval} | {held} |\n"
        )
    return lines

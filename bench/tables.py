"""How instruments are told what to measure, and print what they measured."""

import argparse
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from loadeval import Estimate


def parser_of(what: str | None, names: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Of an instrument that does `what`; with `--only` for some of the names."""
    parser = argparse.ArgumentParser(
        description=what, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if choices := list(names):
        how: dict[str, Any] = {"action": "append", "choices": choices, "metavar": "NAME"}
        parser.add_argument("--only", help="may be given again", **how)
    return parser


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """The median of the turns' ratios, and from where to where they go."""
    ratios = [first / second for first, second in zip(before, after, strict=True)]
    return Estimate(statistics.median(ratios), min(ratios), max(ratios))


def in_words(estimate: Estimate | None) -> str:
    """A ratio with its interval."""
    return "-" if estimate is None else f"{estimate:times}"


def show(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    """Print a table in Markdown, each row as it comes; returns the rows."""
    shown = []
    for cells in (heads, ["---"] * len(heads)):
        print(f"| {' | '.join(cells)} |")
    for cells in rows:
        print(f"| {' | '.join(cells)} |", flush=True)
        shown.append(cells)
    return shown

"""A run as two tables: its batches, and what was read of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loadeval.runlog.model import Column, Run
    from loadeval.runlog.readings import Values
    from loadeval.runlog.steps import Steps

READINGS = ("probe", "subject", "quantity", "time_ns", "value")
"""The columns of the second table."""


def batch_columns(steps: Steps) -> dict[str, Column]:
    """The columns of the first table; `arm` is an index into ARMS, UNKNOWN is -1."""
    return {
        "epoch": steps.epoch,
        "batch": numbers_in_epoch(steps),
        "arm": steps.arm,
        "pair": steps.pair,
        "request_ns": steps.request_ns,
        "wait_ns": steps.wait_ns,
        "step_ns": steps.step_ns,
        "samples": steps.samples,
        "nbytes": steps.nbytes,
        "starved_ns": steps.starved_ns,
    }


def numbers_in_epoch(steps: Steps) -> Column:
    """Which batch of its epoch each one is, counted from 0."""
    return steps.batch


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One quantity of one subject, read by one probe; a value that is not known is not finite."""

    probe: str
    subject: str
    quantity: str
    time_ns: Column
    values: Values


def series(run: Run) -> Iterator[Series]:
    """All that was read of the machine, quantity by quantity."""
    for found in run.readings:
        for quantity, values in found.values.items():
            yield Series(found.probe, found.subject, quantity, found.time_ns, values)


def readings_path(path: Path) -> Path:
    """Where the second table is, beside the first one at `path`."""
    return path.with_name(f"{path.stem}-readings{path.suffix}")

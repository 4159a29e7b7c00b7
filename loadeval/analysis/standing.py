"""How a run stands while it goes on, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from loadeval.analysis.summary import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.outliers import Outlier
    from loadeval.runlog.model import Mode


class Stretch(NamedTuple):
    """Sums over some batches that count, and when the last step of them ended."""

    end_ns: int = 0
    batches: int = 0
    wait_ns: int = 0
    step_ns: int = 0
    samples: int | None = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What batches add up to: rates per second, and the share of their time that was waited.

    `elapsed_ns` is the time that they took. What is not known is None.
    """

    batches: int
    elapsed_ns: int
    batches_per_s: float | None
    samples_per_s: float | None
    wait_share: float | None


@dataclass(frozen=True, slots=True)
class Watch:
    """How a run stands; times are in nanoseconds, and what is not known is None.

    `elapsed_ns` is the time since its start. `epoch` and `batch` are the last ones that are
    known, counted from 0; `batches` counts all that are, and `epoch_batches` is the loader's
    length. `now` is of the steady batches of the last minute, or of the last ones recorded where
    none ended in it; `overall` is of all. Of an alternating run both are of the counted real
    blocks. `epoch_start_ns` and `last_epoch_start_ns` are the first waits of the first epoch and of the
    last one, if there were more. `outlier_count` counts the iterations over twice the median so far;
    of a run that keeps one batch in `every`, the slowest one of each aggregate if it is over.
    `silent_ns` is for how long no batch came, where that is far longer than usual and the run
    has not said that it ended. `events` are the last three.
    """

    name: str
    mode: Mode
    unit: str
    created: str
    every: int
    epoch_batches: int | None
    elapsed_ns: int
    epoch: int | None
    batch: int | None
    batches: int
    now: Standing | None
    overall: Standing | None
    epoch_start_ns: int | None
    last_epoch_start_ns: int | None
    median_iteration_ns: float | None
    outlier_count: int
    outliers: tuple[Outlier, ...]
    events: tuple[str, ...]
    ended: bool
    silent_ns: int | None


def added(one: Stretch, other: Stretch) -> Stretch:
    """Both together; samples are not known where either's are not."""
    unknown = one.samples is None or other.samples is None
    return Stretch(
        max(one.end_ns, other.end_ns),
        one.batches + other.batches,
        one.wait_ns + other.wait_ns,
        one.step_ns + other.step_ns,
        None if unknown else (one.samples or 0) + (other.samples or 0),
    )


def standing(stretches: Sequence[Stretch]) -> Standing | None:
    """What `stretches` add up to; None where there is no batch."""
    total = Stretch()
    for stretch in stretches:
        total = added(total, stretch)
    if not total.batches:
        return None
    elapsed_ns, samples = total.wait_ns + total.step_ns, total.samples
    per_s = SECOND_NS / elapsed_ns if elapsed_ns else None
    return Standing(
        batches=total.batches,
        elapsed_ns=elapsed_ns,
        batches_per_s=None if per_s is None else total.batches * per_s,
        samples_per_s=None if per_s is None or samples is None else samples * per_s,
        wait_share=total.wait_ns / elapsed_ns if elapsed_ns else None,
    )

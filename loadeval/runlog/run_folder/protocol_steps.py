"""The steps of the bottleneck protocol, and how each of them ended, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.runlog.run_folder.processes import NothingMeasured


class Step(Enum):
    """A step, in the order in which they are made."""

    DOCTOR = "doctor"
    WARM_UP = "warm-up"
    REAL = "real"
    REPLAY = "replay"
    ALTERNATE = "alternate"
    COLD = "cold"
    NSYS = "nsys"


FOLDERS = {
    Step.WARM_UP: "warm-up",
    Step.REAL: "real",
    Step.REPLAY: "real",
    Step.ALTERNATE: "alternate",
    Step.COLD: "cold",
    Step.NSYS: "nsys",
}
"""Each step has its logs there; those of the replay are beside the real ones."""


class NotRun(Enum):
    """Why a step was left out."""

    NOT_ASKED_FOR = "not asked for"
    NOT_INSTALLED = "not installed"
    NO_LOADER = "no loader before"
    INTERRUPTED = "interrupted"
    NOT_COLD = "not cold"


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was dropped from the page cache: `nbytes` bytes of so many `files`.

    `stayed` is the share that the page cache still holds, as where another program has mapped the
    files; None where the kernel does not tell.
    """

    files: int
    nbytes: int
    stayed: float | None


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended.

    `code` is the command's, as of subprocess; None where it was not run. `was_stopped` tells
    whether that was by us, after enough batches, and `signal` which one ended the protocol.
    `batches` is how many the training loader served, the most of any rank; `nothing` says why
    there are none, and what failed. `profile` is the file that nsys wrote, in the folder.
    `dropped` is what was dropped from the page cache before it, and `why_not_cold` why nothing was.
    """

    step: Step
    not_run: NotRun | None = None
    code: int | None = None
    was_stopped: bool = False
    signal: int | None = None
    batches: int = 0
    nothing: tuple[NothingMeasured, str] | None = None
    profile: str | None = None
    dropped: Dropped | None = None
    why_not_cold: str = ""

    @property
    def failed(self) -> bool:
        """Whether the command ended by itself, and not well."""
        return bool(self.code) and not self.was_stopped and self.signal is None

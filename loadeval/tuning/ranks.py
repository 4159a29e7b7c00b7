"""Ranks whose settings take turns at the same batches: rank 0 decides, the others follow."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.errors import UsageError
from loadeval.tuning.tuner import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DECISIONS = "turns.json"
"""What rank 0 has decided so far, in the folder of the run."""
MARK = "turns-rank{}"
"""There as long as a rank follows."""
AHEAD = 8
"""Rank 0 decides so many batches ahead of the switch, and two steps of the optimizer more.

Ranks wait for each other at each step of an optimizer: none is further ahead than one step, and
the batches that a framework reads ahead.
"""
NOT_ALL_FOLLOW = (
    "of the training's {ranks} ranks only {follow} take turns in this folder; expected all of them "
    "to run on this machine, each with a training loader that can be tuned"
)
TOO_LATE = "rank 0 has decided, and this rank sees it only after the batch from which on it holds"


class Decision(NamedTuple):
    """From batch number `at` on all ranks measure what `request` says.

    Where that is None the search has ended: training goes on with `changes`.
    """

    at: int
    request: Request | None
    changes: Mapping[str, Any] | None


class RankTurns:
    """Lets the ranks of a training agree on what takes turns from which batch on, by files.

    They make no other contact than that of the training itself. `steps` returns how many steps the
    optimizer has made on the batches of this rank. Raises OSError where `folder` cannot be written.
    """

    def __init__(self, folder: Path, rank: int, ranks: int, steps: Callable[[], int]) -> None:
        self.ranks = ranks
        self.leads = rank == 0
        self._steps, self._first_step = steps, steps()
        self._file = folder / DECISIONS
        self._marks = [folder / MARK.format(number) for number in range(ranks)]
        self._mark = self._marks[rank]
        self._decisions: list[Decision] = []
        self._seen = 0
        if self.leads:  # one that was started again may find what was decided before
            self._file.unlink(missing_ok=True)
        self._mark.touch()

    def decide(
        self, request: Request | None, changes: Mapping[str, Any] | None, served: int
    ) -> None:
        """Let all ranks do so, from a batch on that none has been served yet; see Decision.

        Called by rank 0, which has been served so many. Raises UsageError where others do not
        follow, and OSError.
        """
        follow = sum(mark.exists() for mark in self._marks)
        if follow < self.ranks:
            raise UsageError(NOT_ALL_FOLLOW.format(ranks=self.ranks, follow=follow))
        steps = max(self._steps() - self._first_step, 1)
        ahead = AHEAD + 2 * math.ceil(served / steps)
        self._write(Decision(served + ahead, request, changes))

    def decided(self, served: int) -> Decision | None:
        """What begins after `served` batches, by the next decision; None: nothing does.

        Raises UsageError where it should have begun before.
        """
        decisions: list[Any] = []
        with suppress(FileNotFoundError):
            decisions = json.loads(self._file.read_text(encoding="utf-8"))
        if len(decisions) <= self._seen:
            return None
        at, request, changes = decisions[self._seen]
        if at < served:
            raise UsageError(TOO_LATE)
        if at > served:
            return None
        self._seen += 1
        return Decision(at, None if request is None else Request(*request), changes)

    def leave(self) -> None:
        """Follow no more, as rank 0 sees then, or let no rank follow."""
        with suppress(OSError):
            self._mark.unlink(missing_ok=True)
            if self.leads:
                self._write(Decision(-1, None, None))

    def _write(self, decision: Decision) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps([*self._decisions, decision]), encoding="utf-8")
        new.replace(self._file)
        self._decisions.append(decision)

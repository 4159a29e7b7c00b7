"""A run that is followed by its log, which grows while its training goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.live import LiveRun
from loadeval.data.log import Follower
from loadeval.data.run import SECOND_NS

if TYPE_CHECKING:
    from pathlib import Path


class FollowedRun:
    """Reads the log at `path` bit by bit into its `run`."""

    def __init__(self, path: Path) -> None:
        self.run = LiveRun()
        self._follower = Follower(path)
        self._told_s = 0.0

    def read(self) -> bool:
        """Take all that was appended; False where there is no log. Raises RunLogError."""
        while True:
            appended = self._follower.read()
            if appended is None:
                return False
            if appended.anew:
                self.run = LiveRun()
            before_ns = self.run.latest_ns
            for line in appended.lines:
                self.run.take(line)
            # Some lines tell no time: what a worker was seen doing, also where it hangs.
            if appended.anew or self.run.latest_ns != before_ns:
                self._told_s = appended.written_s
            if not appended.more:
                return True

    def quiet_ns(self, now_s: float) -> int:
        """How long ago the log told a time, at `now_s` since the epoch of its file's clock."""
        return max(round((now_s - self._told_s) * SECOND_NS), 0)

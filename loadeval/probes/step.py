"""The step probe: in which line of the program the training thread is, while it does a step."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from types import CodeType

from loadeval.data.lines import CodeSamples
from loadeval.errors import ProbeError
from loadeval.frames import current_line, short_switches

OURS = tuple(f"{Path(__file__).parents[1]}/{room}/" for room in ("core", "launch"))
"""Files of ours stand in a stack too, and are no lines of the framework or the program."""
LOOKS = 2
"""A reading has so many, and there are some eight readings a second."""
PAUSES_S = (0.003, 0.013, 0.009, 0.015, 0.005, 0.011, 0.001)
"""So long, in turn, a look waits first, while the thread may not keep Python's lock.

A reading begins where the thread gives the lock up, as at a sleep: some ms later it is anywhere.
"""


class StepProbe:
    """Reads where the training thread, by default the one that made the probe, is in its step.

    `waits` is the code that it runs while it waits for a batch: what is seen in there is no step.
    What has called that code is the training loop. So where the loop is a framework's, a step is in
    lines that this calls, and not in the one line of the program that trains.
    """

    name = "step"
    every = 1
    at_edges = False

    def __init__(self, waits: CodeType) -> None:
        self.thread, self._waits, self._loop = threading.get_ident(), waits, {waits}
        self._pauses_s = cycle(PAUSES_S)

    def open(self) -> None:
        """Begin. Raises ProbeError where other threads do not stand still for a look."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise ProbeError("this Python's threads run on while one looks at another")

    def read(self) -> Mapping[str, CodeSamples]:
        """The lines in which the thread is now, and what these call; nothing while it waits."""
        looks = (self._look() for _ in range(LOOKS))
        return {str(at): look for at, look in enumerate(looks) if look is not None}

    def _look(self) -> CodeSamples | None:
        with short_switches():
            time.sleep(next(self._pauses_s))
            place, _, call, frame = current_line(self.thread, self._loop, OURS, by_source=True)
        if frame is not None and frame.f_code is self._waits:
            while (frame := frame.f_back) is not None:
                self._loop.add(frame.f_code)
            return None
        calls = {f"{place} > {call}": 1} if call else {}
        return CodeSamples(None, {place: 1}, {}, calls, "step") if place else None

    def close(self) -> None:
        """Do nothing: nothing is held."""

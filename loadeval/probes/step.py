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
from loadeval.frames import (
    BEFORE_LOOKING_S,
    called_by,
    nothing_collected,
    seen_in,
    short_switches,
)

OURS = tuple(f"{Path(__file__).parents[1]}/{room}/" for room in ("core", "launch"))
"""What lies in the way to a framework's or a program's lines, and is none of them."""


class StepProbe:
    """Reads where the training thread, which made the probe, is in its step.

    `waits` is the code that it runs while it waits for a batch: what is seen in there is no step.
    What has called that code is the training loop. So where the loop is a framework's, a step is in
    lines that this calls, and not in the one line of the program that trains.
    """

    name = "step"
    every = 1
    at_edges = False

    def __init__(self, waits: CodeType) -> None:
        self._thread, self._waits, self._loop = threading.get_ident(), waits, {waits}
        self._pauses_s = cycle(BEFORE_LOOKING_S)

    def open(self) -> None:
        """Begin. Raises ProbeError where other threads do not stand still for a look."""
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise ProbeError("this Python's threads run on while one looks at another")

    def read(self) -> Mapping[str, CodeSamples]:
        """The line in which the thread is now, and what that calls; nothing while it waits."""
        with short_switches():
            time.sleep(next(self._pauses_s))
            with nothing_collected():
                place, _, called, instruction, frame = seen_in(self._thread, self._loop, OURS)
                if frame is not None and frame.f_code is self._waits:
                    while (frame := frame.f_back) is not None:
                        self._loop.add(frame.f_code)
                    return {}
        if not place:
            return {}
        call = (instruction and called_by(*instruction)) or called
        calls = {f"{place} > {call}": 1} if call else {}
        return {"": CodeSamples(None, {place: 1}, {}, calls, "step")}

    def close(self) -> None:
        """Do nothing: nothing is held."""

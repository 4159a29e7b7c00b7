"""Where a training is in its step: in which of its lines, and what that calls."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from loadeval import LoaderEvaluator
from loadeval.probes.threads import StepProbe


class Places:
    """Where a training rests until it is told to go on; `gate.wait()` is a barrier's, of Python."""

    def __init__(self) -> None:
        self.gate = threading.Barrier(2, timeout=10)
        self.probe: Any = None

    def wait(self) -> None:
        """Stands for the request of a batch."""
        self.gate.wait()
        self.gate.wait()

    def seen(self) -> str:
        """Where it rests now, and what is called there; "" for no step. Then it goes on."""
        self.gate.wait()
        seen = self.probe.read()
        self.gate.wait()
        look = next(iter(seen.values()), None)
        return next(iter({**look.calls, **look.running})) if look else ""


def save(places: Places) -> None:
    places.gate.wait()
    places.gate.wait()


def script(places: Places) -> None:
    """A loop that somebody wrote, with a step in a function of its own and in a line."""
    places.probe = StepProbe(Places.wait.__code__)
    for _ in range(2):
        places.wait()
        save(places)
        places.gate.wait()
        places.gate.wait()


FRAMEWORK = """
def fit(places, step):
    for _ in range(2):
        places.wait()
        step(places)
        log(places)

def log(places):
    places.gate.wait()
    places.gate.wait()
"""


def trainer(places: Places) -> None:
    """A program whose loop is a framework's, which calls a function of the program."""
    places.probe = StepProbe(Places.wait.__code__)
    framework: dict[str, Any] = {}
    exec(compile(FRAMEWORK, "/usr/lib/site-packages/frame/loop.py", "exec"), framework)
    framework["fit"](places, save)


def places_of(training: Callable[[Places], None]) -> list[str]:
    """Where each look at it finds it, without the number of the line."""
    places = Places()
    thread = threading.Thread(target=training, args=(places,))
    thread.start()
    found = [re.sub(r"(.*/)?(.+):\d+", r"\2", places.seen()) for _ in range(6)]
    thread.join()
    return found


@pytest.mark.parametrize(
    ("training", "then"), [(script, "test_step.py script"), (trainer, "loop.py log")]
)
def test_a_step_is_in_the_lines_of_the_program(
    training: Callable[[Places], None], then: str
) -> None:
    """Innermost; where a framework's loop calls none of them, in the framework's."""
    found = [place.partition(" > ")[0] for place in places_of(training)]
    assert found == ["", "test_step.py save", then] * 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no columns")
def test_what_a_line_calls_has_its_name_in_the_source() -> None:
    assert places_of(script)[1] == "test_step.py save > places.gate.wait"


def test_a_step_is_of_the_thread_that_trains() -> None:
    evaluator = LoaderEvaluator(range(100), "alternate", probes=("host",), probe_interval_s=0.001)
    found: set[str] = set()

    def training() -> None:
        for _ in range(100):
            for number in evaluator:
                sum(range(20_000 + number))
            found.update(place for look in evaluator.recorded().code for place in look.running)
            if found:
                return

    thread = threading.Thread(target=training)
    thread.start()
    thread.join()
    assert {place.split()[-1] for place in found} == {"training"}

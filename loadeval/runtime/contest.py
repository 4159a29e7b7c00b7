"""Several backends under one training step, each measured in turns."""

from __future__ import annotations

import random
import uuid
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from loadeval.errors import UsageError
from loadeval.runtime.backend import FirstLook, Source
from loadeval.runtime.layout import differences
from loadeval.runtime.sampler import NO_PROBES
from loadeval.runtime.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from loadeval.runlog.model import Run
    from loadeval.runtime.backend import Backend
    from loadeval.runtime.sampler import Probes
    from loadeval.runtime.settings import Settings


class Measured(NamedTuple):
    """What is known of a backend afterwards: no run where it failed before it had a turn."""

    name: str
    run: Run | None
    error: Exception | None


class Contest:
    """Reads the first batch of each backend, and has them take turns.

    `settings` are as for Turns, and `probes` makes those of each backend. `unlike` tells in what
    the backends' work differs, a clause for each difference. Raises UsageError for a loader that
    has no batch, or cannot serve several turns.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        settings: Settings,
        probes: Callable[[], Probes] = lambda: NO_PROBES,
    ) -> None:
        self._settings = settings
        self._probes = probes
        self._names = list(backends)
        self._sources: dict[str, Source] = {}
        self._looks: dict[str, FirstLook] = {}
        self._errors: dict[str, Exception] = {}
        for name, backend in backends.items():
            self._look(name, backend)
        self.unlike = differences({name: look.layout for name, look in self._looks.items()})

    def run(self, step: Callable[[Any], object], logs: Mapping[str, Path]) -> list[Measured]:
        """Train with `step` on all backends in turns; those named in `logs` write a run log.

        An error of a loader ends the turns of its backend alone. Raises what `step` raises, and
        RunLogError when a log exists, or cannot be written.
        """
        with ExitStack() as stack:
            turns = {}
            comparison = uuid.uuid4().hex
            for name, look in self._looks.items():
                settings = replace(self._settings, name=name, log_file=logs.get(name))
                turns[name] = Turns(
                    self._sources[name], look.info, settings, comparison, self._probes()
                )
                stack.callback(turns[name].close)
            for number in range(self._settings.pairs or 0):
                self._round(turns, step, number)
        self._errors |= {name: one.error for name, one in turns.items() if one.error is not None}
        return [
            Measured(name, turns[name].run() if name in turns else None, self._errors.get(name))
            for name in self._names
        ]

    def _look(self, name: str, backend: Backend) -> None:
        try:
            source = self._sources[name] = Source(backend)
            self._looks[name] = source.look(self._settings.samples)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        except Exception as error:  # noqa: BLE001 - the other backends go on
            self._errors[name] = error

    def _round(
        self, turns: Mapping[str, Turns], step: Callable[[Any], object], number: int
    ) -> None:
        order = list(turns.items())
        random.Random(f"{self._settings.seed}/round {number}").shuffle(order)  # noqa: S311 - no secret
        for name, one in order:
            if one.error is None:
                with closing(one.turn(number)) as batches, _whose(name):
                    for batch in batches:
                        step(batch)


@contextmanager
def _whose(name: str) -> Iterator[None]:
    """Add to an error of the step of whose batch it was."""
    try:
        yield
    except Exception as error:
        # Python 3.10 has no notes.
        getattr(error, "add_note", str)(f"The training step was given a batch of backend {name!r}.")
        raise

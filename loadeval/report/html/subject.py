"""What a page is about: one run, a real and an ideal one, or those of several backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.report.backends import BackendComparison
from loadeval.report.comparison import Comparison, are_backends, columns
from loadeval.report.formatting import LONGEST_NAME, shortened
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadeval.analysis.rules.finding import Diagnosis
    from loadeval.report.comparison import Side
    from loadeval.runlog.model import Run

    Diagnose = Callable[..., Diagnosis]


@dataclass(frozen=True, slots=True)
class Track:
    """A run under the name that tells it from the others; "" where it is the only one."""

    name: str
    run: Run
    number: int = 0

    @property
    def time_axis(self) -> str:
        """What its figures over time have in common."""
        return f"run-{self.number}"

    def titled(self, text: str) -> str:
        """`text` with the name behind it, where there are others."""
        return f"{text}: {self.name}" if self.name else text


@dataclass(frozen=True, slots=True)
class Subject:
    """The runs of a page, told apart as `loadeval compare` tells them.

    `comparison` is of one alternating run, or of a real and an ideal one; `backends` of several;
    both are None for one run that did not alternate. `sides` are the columns that a table of
    them has, and `diagnoses` what was found in each, by name.
    """

    tracks: tuple[Track, ...]
    comparison: Comparison | None
    backends: BackendComparison | None
    sides: tuple[tuple[str, Side], ...]
    diagnoses: tuple[tuple[str, Diagnosis], ...]

    @classmethod
    def of(cls, runs: Sequence[Run], diagnosing: Diagnose = diagnose) -> Subject:
        """Raises UsageError where two runs cannot be compared, or one of several replayed."""
        if are_backends(runs):
            return cls._of_backends(runs, diagnosing)
        if len(runs) == 1 and runs[0].header.mode != "alternate":
            (run,) = runs
            found = (("", diagnosing(run)),) if run.header.mode == "log" else ()
            (side,) = columns(run)
            return cls((Track("", run),), None, None, ((run.header.mode, side),), found)
        comparison = Comparison.of(*runs)
        names: tuple[str, ...] = ("",) if len(runs) == 1 else ARMS
        sides = tuple(zip(ARMS, comparison.sides, strict=True))
        found = (("", diagnosing(*runs)),)
        return cls(_tracks(names, runs), comparison, None, sides, found)

    @classmethod
    def _of_backends(cls, runs: Sequence[Run], diagnosing: Diagnose) -> Subject:
        backends = BackendComparison.of_runs(runs)
        names = [shortened(one.name, LONGEST_NAME) for one in backends.backends]
        tracks = _tracks(names, runs)
        sides = [
            (track.name if len(parts) == 1 else f"{track.name}, {arm}", side)
            for track in tracks
            for parts in [columns(track.run)]
            for arm, side in zip(ARMS, parts, strict=False)
        ]
        found = [(track.name, diagnosing(track.run)) for track in tracks]
        return cls(tracks, None, backends, tuple(sides), tuple(found))

    def failed(self, track: Track) -> bool:
        """Whether it is of a backend whose loader raised."""
        return self.backends is not None and self.backends.backends[track.number].error is not None

    @property
    def runs(self) -> list[Run]:
        """All of them, in the order given."""
        return [track.run for track in self.tracks]


def _tracks(names: Sequence[str], runs: Sequence[Run]) -> tuple[Track, ...]:
    named = zip(names, runs, strict=True)
    return tuple(Track(name, run, number) for number, (name, run) in enumerate(named))

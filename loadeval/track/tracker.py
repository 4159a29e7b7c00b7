"""What a tracker gets of a run: scalars while it goes on, the page and the figure at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loadeval.analysis.live import LiveRun
from loadeval.analysis.report import Report
from loadeval.report.figure.figure import comparison_figure, figure_path, save_figure
from loadeval.report.page.page import check_replaceable, page_of, write_page
from loadeval.runlog.model import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.live import LiveState
    from loadeval.runlog.log_file.codec import Line
    from loadeval.runlog.model import Run

PREFIX = "loadeval/"
BATCHES = f"{PREFIX}batches"
PAGE, FIGURE = "loadeval.html", "loadeval.png"


class LiveTracker(ABC):
    """Follows a run, whose scalars a subclass passes on."""

    name: str

    def __init__(self) -> None:
        self._live = LiveRun()

    def take(self, line: Line) -> None:
        """Note a line of the run."""
        self._live.take(line)

    def join(self) -> None:  # noqa: B027 - a function has none
        """Join the run that the program has begun, where the tracker has such."""

    def scalars(self) -> tuple[int, dict[str, float]]:
        """How many batches there were by now, and what is known by then."""
        state = self._live.state(0)
        return (0, {}) if state is None else (state.batches, scalars_of(state))

    @abstractmethod
    def log(self, step: int, scalars: dict[str, float]) -> None:
        """Pass scalars on."""

    def finish(self, run: Run) -> None:
        """Pass on the last scalars, and the lost share."""
        self.log_last(Report.of([run]))

    def log_last(self, report: Report) -> None:
        """Pass on the last scalars, and the lost share."""
        step, scalars = self.scalars()
        self.log(step, {**scalars, **lost_share_of(report)})


class FunctionTracker(LiveTracker):
    """Calls a function, on another thread than the one that trains."""

    name = "the function that track= names"

    def __init__(self, function: Callable[[int, dict[str, float]], object]) -> None:
        super().__init__()
        self._function = function

    def log(self, step: int, scalars: dict[str, float]) -> None:
        """Call it."""
        self._function(step, scalars)


class RunTracker(LiveTracker):
    """Also attaches page and figure, to the run that was joined or to one of its own."""

    @property
    def run_name(self) -> str:
        """What a run is called that is begun for it."""
        state = self._live.state(0)
        return "loadeval" if state is None else f"loadeval {state.name}"

    def finish(self, run: Run) -> None:
        """Pass on the last scalars, the lost share, the page and the figure, and end."""
        report = Report.of([run])
        try:
            self.log_last(report)
            with TemporaryDirectory(prefix="loadeval-") as folder:
                self.attach(drawn(report, Path(folder)))
        finally:
            self.end()

    @abstractmethod
    def attach(self, files: list[Path]) -> None:
        """Keep these files with the run."""

    @abstractmethod
    def end(self) -> None:
        """End the run, if it was begun here."""


def scalars_of(state: LiveState) -> dict[str, float]:
    """Throughput and waits of the last minute, all waits, and memory; without what is not known."""
    now, real, start_ns = state.now, state.arms.get("real"), state.epoch_start_ns
    values = {
        "epoch": state.epoch,
        "batches_per_s": None if now is None else now.batches_per_s,
        "samples_per_s": None if now is None else now.samples_per_s,
        "wait_share": None if now is None else now.wait_share,
        "wait_s": None if real is None else real.wait_ns / SECOND_NS,
        "epoch_start_s": None if start_ns is None else start_ns / SECOND_NS,
        **{f"{process}_memory_bytes": value for process, value in state.memory_bytes.items()},
    }
    return {f"{PREFIX}{name}": float(value) for name, value in values.items() if value is not None}


def lost_share_of(report: Report) -> dict[str, float]:
    """The lost share of an alternating run, and its CI."""
    lost = None if report.comparison is None else report.comparison.headroom.lost_share
    if lost is None:
        return {}
    values = {"lost_share": lost.value, "lost_share_low": lost.low, "lost_share_high": lost.high}
    return {f"{PREFIX}{name}": value for name, value in values.items() if value is not None}


def drawn(report: Report, folder: Path) -> list[Path]:
    """The page, and of an alternating run the figure, in `folder`.

    Raises UsageError where what they are drawn with is not installed.
    """
    (run,) = report.runs
    page = folder / PAGE
    check_replaceable(page)
    log = run.run.path or Path(f"{run.run.header.name}.jsonl")
    write_page(page_of(report, [log], Path(PAGE)), page)
    if report.comparison is None:
        return [page]
    figure = figure_path(folder / FIGURE)
    save_figure(comparison_figure(report.comparison), figure)
    return [page, figure]

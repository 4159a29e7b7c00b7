"""Passes scalars of a run on to an experiment tracker, on a thread beside the training."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path

from loadeval.core.threads import BackgroundThreads, within
from loadeval.data.lines import Line
from loadeval.data.run import SECOND_NS, Run
from loadeval.errors import UsageError, in_words, warn
from loadeval.estimate.gap import gap
from loadeval.live import LiveRun
from loadeval.settings import TrackerName

Log = Callable[[int, dict[str, float]], object]
"""Called with the number of batches so far, and with scalars."""
Tracker = Callable[[str], AbstractContextManager[Log]]
"""Joins the run that the program has begun, in the thread that trains, or begins one of a name."""
PREFIX = "loadeval/"
BATCHES = f"{PREFIX}batches"
THREAD = "loadeval-tracker"
TICK_S, INTERVAL_S = 1.0, 10.0
MOST_LINES = 10_000
"""A tracker that hangs makes lines wait: some minutes, of a run that writes many of them."""
LONGEST_END_S = 5.0
"""The end of a training waits no longer for a tracker, whose server may be gone."""
LATE = "it takes too long"
DEFAULT_EXPERIMENT = "0"
"""MLflow's number of its experiment `Default`, which is always there."""


class Tracking:
    """Follows a run by its lines, and logs its scalars at an interval until the tracker fails.

    The thread that trains only hands lines over. One thread at a time calls the tracker. Raises
    UsageError where the package of a tracker is not installed.
    """

    def __init__(
        self, track: TrackerName | Log, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._tracker = _tracker_for(track)
        self._now_s = now_s
        self._due_s = math.inf  # until the first batch
        self._is_over = False
        self._live = LiveRun()
        self._log: Log = lambda *_: None
        self._end = ExitStack()
        self._lines: deque[Line] = deque()
        self._lock = threading.Lock()

    def take(self, line: Line) -> None:
        """Hand a line over."""
        if not self._is_over:
            self._lines.append(line)
            if len(self._lines) > MOST_LINES:
                self._give_up(LATE)

    def begin(self, threads: BackgroundThreads, drain: Callable[[], None]) -> None:
        """Log while an epoch is served, which has its first batch; that of the run joins first.

        `drain` hands over the lines that are due.
        """
        if self._due_s == math.inf:
            self._due_s = self._now_s() + INTERVAL_S
            with self._given_up_on_error():
                self._follow()
                name = f"loadeval {self._live.name}".strip()
                self._log = self._end.enter_context(self._tracker(name))
        threads.start(THREAD, partial(self.tick, drain), TICK_S)

    def tick(self, drain: Callable[[], None]) -> None:
        """Follow the run; log if an interval has passed since the last time."""
        with self._lock:
            is_due = self._now_s() >= self._due_s
            if is_due:
                self._due_s = self._now_s() + INTERVAL_S
                drain()
            with self._given_up_on_error():
                self._follow()
                if is_due and not self._is_over:
                    self._log(*scalars_of(self._live))

    def finish(self, run: Callable[[], Run]) -> None:
        """Log the last scalars and the lost share, once, if there was a batch."""
        if self._is_over or self._due_s == math.inf:
            return

        def work() -> None:
            with self._lock, self._given_up_on_error():
                if not self._is_over:
                    with self._end:
                        self._follow()
                        self._log(*scalars_of(self._live, run()))

        if not within(LONGEST_END_S, THREAD, work):
            self._give_up(LATE)
        self._is_over = True

    def _follow(self) -> None:
        while self._lines:
            self._live.take(self._lines.popleft())

    @contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a tracker's fault is none of the training's
            self._give_up(in_words(error))

    def _give_up(self, why: str) -> None:
        is_news, self._is_over = not self._is_over, True
        self._lines.clear()
        if is_news:
            what = f"{self._name} gets nothing more of this run ({why})"
            warn(f"{what}; training and measurement go on")


def scalars_of(live: LiveRun, whole: Run | None = None) -> tuple[int, dict[str, float]]:
    """How many batches there were, and scalars without what is not known.

    They are throughput and waits of the last minute and all waits; with the `whole` run, if
    it alternated, also the lost share and its CI.
    """
    start_ns = live.epoch_start_ns
    values: dict[str, float | None] = {
        "epoch": live.epoch,
        **live.last_minute(),
        "wait_s": live.wait_ns / SECOND_NS if live.batches else None,
        "epoch_start_s": None if start_ns is None else start_ns / SECOND_NS,
    }
    if whole is not None and (lost := gap(whole).lost_share):
        values |= {"lost_share": lost.value, "lost_share_low": lost.low}
        values["lost_share_high"] = lost.high
    known = {PREFIX + name: float(value) for name, value in values.items() if value is not None}
    return live.batches, known


@contextmanager
def mlflow(name: str) -> Iterator[Log]:
    """Log to the run that is active when it begins, or to one called `name`."""
    import mlflow  # noqa: PLC0415 - this tracker's alone

    # A run is active in the thread that began it, and the program may end it before us.
    client, active = mlflow.MlflowClient(), mlflow.active_run()
    run_id = None if active is None else active.info.run_id

    def log(step: int, scalars: dict[str, float]) -> None:
        nonlocal run_id
        if run_id is None:
            run_id = client.create_run(DEFAULT_EXPERIMENT, run_name=name).info.run_id
        mlflow.log_metrics(scalars, step=step, run_id=run_id)

    yield log
    if active is None and run_id is not None:
        client.set_terminated(run_id)


@contextmanager
def wandb(name: str) -> Iterator[Log]:
    """Log to the run that the program has begun, or to one called `name`."""
    import wandb  # noqa: PLC0415 - this tracker's alone

    theirs = run = wandb.run
    is_defined = False

    def log(step: int, scalars: dict[str, float]) -> None:
        nonlocal run, is_defined
        if run is None:
            # What the program prints is left alone, and so is a run that it begins later.
            settings = wandb.Settings(console="off")
            run = wandb.init(name=name, reinit="create_new", settings=settings)
        if not is_defined:  # drawn over the batches, not over the program's steps
            run.define_metric(BATCHES, hidden=True)
            run.define_metric(f"{PREFIX}*", step_metric=BATCHES)
            is_defined = True
        # A row of ours among the program's would move its steps on.
        run.log({**scalars, BATCHES: step}, commit=theirs is None)

    yield log
    if theirs is None and run is not None:
        run.finish()


@contextmanager
def tensorboard(name: str) -> Iterator[Log]:
    """Write event files to a new folder in `runs`, where torch's writer has its own."""
    from tensorboard.summary import Writer  # noqa: PLC0415 - this tracker's alone

    folder = f"{name.replace(' ', '-').replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    writer: Writer | None = None

    def log(step: int, scalars: dict[str, float]) -> None:
        nonlocal writer
        writer = writer or Writer(str(Path("runs") / folder))
        for tag, value in scalars.items():
            writer.add_scalar(tag, value, step)
        writer.flush()

    yield log
    if writer is not None:
        writer.close()


TRACKERS: dict[TrackerName, tuple[str, Tracker]] = {
    "mlflow": ("MLflow", mlflow),
    "wandb": ("Weights & Biases", wandb),
    "tensorboard": ("TensorBoard", tensorboard),
}


def _tracker_for(track: TrackerName | Log) -> tuple[str, Tracker]:
    if callable(track):
        return "the function that track= names", lambda _: nullcontext(track)
    try:
        import_module(track)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"track={track!r} needs the package {error.name}, which is not installed; install it "
            f"with: pip install {error.name}"
        ) from error
    return TRACKERS[track]

"""A run while it goes on: the lines of its log go in one by one, and its state comes out.

What is held does not grow with the run: sums over all that counts and over each second of the last
minute, the last row of each epoch that is open, and how many iterations were how long.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, Values, constant
from loadeval.data.lines import (
    Block,
    EpochEnd,
    Event,
    Header,
    Line,
    Mode,
    Readings,
    RunEnd,
    StageTimes,
    decode,
)
from loadeval.data.log import ASK_FOR_A_LOG, next_part, opened
from loadeval.data.run import ARMS, SECOND_NS, steps_of
from loadeval.errors import RunLogError
from loadeval.estimate.epochs import FEWEST_FOR_OUTLIERS, OUTLIER_TIMES_MEDIAN

RECENT_S = 60
"""What counts as now."""
SILENT_NS, SILENT_ITERATIONS = 10 * SECOND_NS, 10
"""A run is silent after so long, and so many iterations."""
EVENTS_KEPT, OUTLIERS_KEPT = 3, 5
BINS_IN_A_DOUBLING = 32
"""For the median, iterations are counted in bins: it is right to some 2%."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Batches and samples per second over some batches, and the share of the time that was waited.

    `elapsed_ns` is the time that the batches took. What is not known is None.
    """

    batches: int
    elapsed_ns: int
    batches_per_s: float | None
    samples_per_s: float | None
    wait_share: float | None


@dataclass(frozen=True, slots=True)
class Outlier:
    """An iteration over twice the median; `request_ns` is when its batch was asked for.

    `worker` loaded it; None where that is not recorded, or the training process did.
    """

    epoch: int
    batch: int
    worker: int | None
    request_ns: int
    wait_ns: int
    step_ns: int


@dataclass(slots=True)
class LiveState:
    """How far a run has come and how fast it is; what is not known is None.

    `elapsed_ns` is the time since its start. `epoch` and `batch` are the last ones that are
    known, counted from 0; `batches` counts all that are, and `epoch_batches` is the loader's
    length. `now` is of the steady batches of the last minute, or of the last ones recorded where
    none ended in it; `overall` is of all. Of an alternating run both are of the counted real
    blocks, of a replay of the kept batches. `wait_ns` is how long training has waited for the
    loader so far, warm-up included; `epoch_start_ns` and `last_epoch_start_ns` are the first waits
    of the first epoch and of the last one, if there were more. `outlier_count` counts the outliers
    so far, and `outliers` are the last ones. `silent_ns` is for how long no batch came, where that
    is far longer than usual and the run has not said that it, or its recording, ended. `events` are
    the last three. `memory_bytes` is what the training `process` and its `workers` took when it was
    last read.
    """

    name: str = ""
    mode: Mode = "log"
    unit: str = ""
    created: str = ""
    epoch_batches: int | None = None
    elapsed_ns: int = 0
    epoch: int | None = None
    batch: int | None = None
    batches: int = 0
    now: Rates | None = None
    overall: Rates | None = None
    wait_ns: int = 0
    epoch_start_ns: int | None = None
    last_epoch_start_ns: int | None = None
    median_iteration_ns: float | None = None
    outlier_count: int = 0
    outliers: tuple[Outlier, ...] = ()
    events: tuple[str, ...] = ()
    ended: bool = False
    silent_ns: int | None = None
    memory_bytes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveJob:
    """The ranks of a job, under the names of their logs, in order; a run by itself is one."""

    ranks: Mapping[str, LiveState]

    @property
    def ended(self) -> bool:
        """Whether all of them have."""
        return all(state.ended for state in self.ranks.values())

    def rates(self, when: Literal["now", "overall"]) -> Rates | None:
        """The rates of all ranks, which leave a step together; None where one has none yet.

        The job waits no less than the rank that waits most: how much longer, only batches that are
        aligned tell.
        """
        rates = [state.now if when == "now" else state.overall for state in self.ranks.values()]
        known = [rank for rank in rates if rank is not None]
        if len(known) < len(rates):
            return None
        batches = [rank.batches_per_s for rank in known if rank.batches_per_s is not None]
        samples = [rank.samples_per_s for rank in known if rank.samples_per_s is not None]
        waits = [rank.wait_share for rank in known if rank.wait_share is not None]
        return Rates(
            batches=min(rank.batches for rank in known),
            elapsed_ns=max(rank.elapsed_ns for rank in known),
            batches_per_s=min(batches, default=None),
            samples_per_s=sum(samples) if len(samples) == len(known) else None,
            wait_share=max(waits, default=None),
        )

    def most_waiting(self) -> list[tuple[str, LiveState]]:
        """The ranks, those first that wait most of the time."""

        def wait_share(rank: tuple[str, LiveState]) -> float:
            rates = rank[1].now or rank[1].overall
            return (rates and rates.wait_share) or 0.0

        return sorted(self.ranks.items(), key=wait_share, reverse=True)


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long a run that goes on has got no batch, and what it is used to.

    `longest_wait_ns` is the longest wait so far, and `longest_gap_ns` the longest time between two
    batches, with the step between them; None where there was none. An epoch `is_open` where the
    last one that had a batch has not ended, and before the first batch. What is known of the
    process that writes the log is in `environment`.
    """

    silent_ns: int
    longest_wait_ns: int | None
    longest_gap_ns: int | None
    is_open: bool
    batches: int
    environment: Mapping[str, Any]


class LiveRun:
    """Takes the lines of a run log, checked, from the first on.

    `so_far` is what they told, without what depends on the time; `latest_ns` is the latest time
    that one of them told.
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self.so_far = LiveState()
        self.latest_ns = 0
        self._warmup = 0
        self._is_open, self._is_left = True, False  # left: what goes on is not recorded any more
        self._last_batch_ns = 0
        self._longest_wait_ns: int | None = None
        self._longest_gap_ns: int | None = None
        self._next: dict[int, int] = {}  # how many batches each open epoch has had
        self._open: dict[int, Columns] = {}  # and its last row, whose step goes on
        self._overall = np.zeros(4)  # batches, waits, steps and samples that count
        self._seconds: dict[int, Values] = {}  # the same by the second in which the steps ended
        self._bins = np.zeros(64 * BINS_IN_A_DOUBLING, dtype=np.int64)

    def take(self, line: Line) -> None:
        """Take the next line."""
        so_far = self.so_far
        match line:
            case Header(loader=loader):
                self.header = line
                so_far.name, so_far.mode, so_far.unit = line.name, line.mode, line.unit
                so_far.created, so_far.epoch_batches = line.created, loader.length
                self._warmup = line.warmup
                # As in a report: of epochs that are over before the loader's queue is full.
                if (
                    loader.length
                    and loader.length <= line.warmup <= (loader.prefetch_depth or 0) + 2
                ):
                    self._warmup = min(loader.length - 1, 1)
            case Block() if line.request_ns:
                self._take_block(line)
            case StageTimes(worker=[*workers]) if so_far.mode != "alternate":
                # That tells them in the loader's order, which is not that of training.
                self._take_workers(line.epoch, dict(zip(line.batch, workers, strict=True)))
            case EpochEnd():
                self._close(line.epoch, line.request_ns)
                self._next.pop(line.epoch, None)
                self._is_open, self._is_left = False, line.cause == "unmeasured"
                self._reach((line.request_ns or 0) + (line.wait_ns or 0))
            case Readings():
                self._reach(max(line.time_ns, default=0))
                read = line.values.get("pss_bytes", []) if line.probe == "host" else []
                if known := [value for value in read if value is not None]:
                    so_far.memory_bytes = {**so_far.memory_bytes, line.subject: known[-1]}
            case Event():
                self._reach(line.time_ns)
                so_far.events = (*so_far.events, line.message)[-EVENTS_KEPT:]
            case RunEnd():
                so_far.ended = True

    def state(self, quiet_ns: int) -> LiveState | None:
        """The state `quiet_ns` after the log was last written; None without a header."""
        if self.header is None:
            return None
        is_over = self.so_far.ended or self._is_left
        elapsed_ns = self.latest_ns + (0 if self.so_far.ended else quiet_ns)
        silent_ns = elapsed_ns - self._last_batch_ns
        batches, wait_ns, step_ns, _ = self._overall
        usual_ns = SILENT_ITERATIONS * (wait_ns + step_ns) / max(batches, 1)
        is_silent = not is_over and silent_ns > max(SILENT_NS, usual_ns)
        since_s = elapsed_ns // SECOND_NS - RECENT_S
        recent = [sums for second, sums in self._seconds.items() if second > since_s]
        if not recent and self._seconds and not is_silent:
            recent = [self._seconds[max(self._seconds)]]
        return replace(
            self.so_far,
            elapsed_ns=elapsed_ns,
            now=_rates(sum(recent, np.zeros(4))),
            overall=_rates(self._overall),
            silent_ns=silent_ns if is_silent else None,
        )

    def silence(self, quiet_ns: int) -> Silence | None:
        """How long no batch has come, `quiet_ns` after the log was last written.

        None without a header, and once the run or its recording has ended.
        """
        if self.header is None or self.so_far.ended or self._is_left:
            return None
        return Silence(
            self.latest_ns + quiet_ns - self._last_batch_ns,
            self._longest_wait_ns,
            self._longest_gap_ns,
            self._is_open,
            self.so_far.batches,
            self.header.environment,
        )

    def _take_block(self, block: Block) -> None:
        """Take batches; the first of them ends the last step of their epoch."""
        self._close(block.epoch, block.request_ns[0])
        so_far, first, count = self.so_far, self._next.get(block.epoch, 0), len(block.request_ns)
        numbers, worker = np.arange(first, first + count), constant(UNKNOWN, count)
        rows = steps_of([block]).replace(batch=numbers, worker=worker)
        came_ns = rows.request_ns + rows.wait_ns
        gap_ns = int(np.diff(came_ns, prepend=self._last_batch_ns).max())
        self._longest_gap_ns = max(self._longest_gap_ns or 0, gap_ns)
        self._longest_wait_ns = max(self._longest_wait_ns or 0, *block.wait_ns)
        self._last_batch_ns = max(self._last_batch_ns, int(came_ns[-1]))
        self._reach(int(came_ns[-1]))
        self._is_open, self._is_left = True, False
        self._next[block.epoch] = first + count
        so_far.epoch, so_far.batch = block.epoch, first + count - 1
        so_far.batches += count
        is_real = block.arm == "real"
        so_far.wait_ns += sum(block.wait_ns) if is_real else 0
        was_ready = self.header and self.header.loader.ready_batches and not block.epoch
        if not first and not was_ready and (is_real or so_far.mode == "replay"):
            if so_far.epoch_start_ns is None:
                so_far.epoch_start_ns = block.wait_ns[0]
            else:
                so_far.last_epoch_start_ns = block.wait_ns[0]
        self._count(rows.take(slice(-1)))
        self._open[block.epoch] = rows.take(slice(-1, None))

    def _take_workers(self, epoch: int, workers: Mapping[int, int | None]) -> None:
        """Note who loaded the batches, which may be told before or after their steps have ended."""
        self.so_far.outliers = tuple(
            replace(outlier, worker=workers[outlier.batch])
            if outlier.epoch == epoch and outlier.batch in workers
            else outlier
            for outlier in self.so_far.outliers
        )
        if epoch in self._open:
            worker = workers.get(int(self._open[epoch].batch[0]))
            if worker is not None:
                self._open[epoch] = self._open[epoch].replace(worker=[worker])

    def _close(self, epoch: int, request_ns: int | None) -> None:
        """The last step ended with a request at that time; None: nobody knows when it did."""
        rows = self._open.pop(epoch, None)
        if rows is not None and request_ns is not None:
            step_ns = np.maximum(request_ns - rows.request_ns - rows.wait_ns, 0)
            self._count(rows.replace(step_ns=step_ns))

    def _count(self, rows: Columns) -> None:
        """Add those `rows` that are steady."""
        mode = self.so_far.mode
        is_steady = rows.pair != UNKNOWN if mode == "alternate" else rows.batch >= self._warmup
        of_arm = rows.arm == ARMS.index("ideal" if mode == "replay" else "real")
        rows = rows.take(is_steady & of_arm & (rows.step_ns != UNKNOWN))
        if not len(rows):
            return
        samples = np.where(rows.samples == UNKNOWN, np.nan, rows.samples)
        sums = np.array([np.ones(len(rows)), rows.wait_ns, rows.step_ns, samples])
        self._overall += sums.sum(axis=1)
        ended_s = (rows.request_ns + rows.wait_ns + rows.step_ns) // SECOND_NS
        oldest_s = max([int(ended_s.max()), *self._seconds]) - RECENT_S + 1
        self._seconds = {at: kept for at, kept in self._seconds.items() if at >= oldest_s}
        for second in np.unique(ended_s[ended_s >= oldest_s]).tolist():
            of_second = sums[:, ended_s == second].sum(axis=1)
            self._seconds[second] = self._seconds.get(second, np.zeros(4)) + of_second
        self._find_outliers(rows)

    def _find_outliers(self, rows: Columns) -> None:
        """Each is judged by the median of the iterations up to then."""
        so_far, iteration_ns = self.so_far, rows.wait_ns + rows.step_ns
        bins = (BINS_IN_A_DOUBLING * np.log2(np.maximum(iteration_ns, 1))).astype(np.int64)
        self._bins += np.bincount(bins, minlength=len(self._bins))
        up_to = np.cumsum(self._bins)
        if up_to[-1] < FEWEST_FOR_OUTLIERS:
            return
        middle = int(np.searchsorted(up_to, up_to[-1] / 2))
        so_far.median_iteration_ns = 2 ** ((middle + 0.5) / BINS_IN_A_DOUBLING)
        long = np.flatnonzero(iteration_ns > OUTLIER_TIMES_MEDIAN * so_far.median_iteration_ns)
        so_far.outlier_count += len(long)
        for row in long[-OUTLIERS_KEPT:]:
            names = ("epoch", "batch", "worker", "request_ns", "wait_ns", "step_ns")
            epoch, batch, worker, *times_ns = (int(rows[name][row]) for name in names)
            found = Outlier(epoch, batch, None if worker == UNKNOWN else worker, *times_ns)
            so_far.outliers = (*so_far.outliers, found)[-OUTLIERS_KEPT:]

    def _reach(self, time_ns: int) -> None:
        self.latest_ns = max(self.latest_ns, time_ns)


class FollowedRun:
    """Reads the log at `path` bit by bit into its `run`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = LiveRun()
        self._told_s = 0.0
        self._file: tuple[int, int] | None = None
        self._first_line = b""
        self._read_bytes = 0

    def read(self) -> bool:
        """Take all lines that were appended, but for damaged ones; False where there is no log.

        An incomplete last line waits for its end. A log that was cut off, or replaced by another
        one, is read from its beginning. Raises RunLogError when it is no log, or cannot be read.
        """
        try:
            with opened(self.path) as file:
                self._read_on(file)
        except RunLogError as error:
            self._file = None
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return True

    def _read_on(self, file: BinaryIO) -> None:
        state = os.fstat(file.fileno())
        identity = (state.st_dev, state.st_ino)
        is_same = identity == self._file and state.st_size >= self._read_bytes
        if not is_same or file.read(len(self._first_line)) != self._first_line:
            self._file, self._first_line, self._read_bytes = identity, b"", 0
        is_new = self._read_bytes == 0
        if is_new:
            self.run = LiveRun()
        before_ns = self.run.latest_ns
        file.seek(self._read_bytes)
        while texts := next_part(file):
            whole = [text for text in texts if text.endswith(b"\n")]
            for text in whole:
                try:
                    line = decode(text)
                except RunLogError:
                    continue
                if self.run.header is None and not isinstance(line, Header):
                    break
                self.run.take(line)
            if whole and self.run.header is None:
                raise RunLogError(f"{self.path}, line 1 is no header of a run log; {ASK_FOR_A_LOG}")
            self._first_line = self._first_line or b"".join(whole[:1])
            self._read_bytes += sum(map(len, whole))
            if len(whole) < len(texts):  # the rest of the last line may have come meanwhile
                break
        # Some lines tell no time: what a worker was seen doing, also where it hangs.
        if is_new or self.run.latest_ns != before_ns:
            self._told_s = state.st_mtime

    def quiet_ns(self, now_s: float) -> int:
        """How long ago the log told a time, at `now_s` since the epoch of its file's clock."""
        return max(round((now_s - self._told_s) * SECOND_NS), 0)


def _rates(sums: Values) -> Rates | None:
    """The rates of so many batches, which took so long and had so many samples; None of none."""
    batches, wait_ns, step_ns, samples = sums.tolist()
    if not batches:
        return None
    elapsed_ns = wait_ns + step_ns
    if not elapsed_ns:
        return Rates(int(batches), 0, None, None, None)
    per_s = SECOND_NS / elapsed_ns
    return Rates(
        batches=int(batches),
        elapsed_ns=int(elapsed_ns),
        batches_per_s=batches * per_s,
        samples_per_s=None if np.isnan(samples) else samples * per_s,
        wait_share=wait_ns / elapsed_ns,
    )

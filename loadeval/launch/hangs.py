"""Looks from outside after trainings that write logs: where no batch comes, it finds out why.

Nothing is added to a training. Its logs are followed as `loadeval watch` does, and only once it got
no batch for long are its processes looked at, twice.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from loadeval.analysis.attach.marks import marks_of
from loadeval.analysis.hangs.hang import Cause, hang_of, hang_of_job
from loadeval.analysis.hangs.stack import WaitsIn
from loadeval.data.redaction import is_hidden
from loadeval.data.run import SECOND_NS
from loadeval.errors import LoadevalError
from loadeval.live import FollowedRun
from loadeval.probes.looks import look_at, memory, with_native_frames
from loadeval.report.wording.hangs import stacks_text
from loadeval.runtime.registry import declared_in_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from loadeval.analysis.attach.marks import Marks
    from loadeval.analysis.hangs.hang import Hang
    from loadeval.live import Silence
    from loadeval.probes.looks import KernelMemory, Look

TIMES_LONGEST_WAIT = 10
LEAST_NS = 30 * SECOND_NS
"""By default, who got no batch for so many times as long as ever before, and so long, may hang."""
INTERVAL_S = 1.0
"""The logs are read no more often."""
SHORTEST_S, LONGEST_S = 1.0, 5.0
"""What hangs does not move between two looks, which are a tenth of the limit apart, within these.
"""
AGAIN = 3
"""Where it is no hang yet, it is looked at again after the limit's time divided by this."""
TIMES_LONGEST_GAP = 3
"""A step is long that takes so many times the longest time between two batches."""
MOST_FILES = 100


def hang_since(
    first: Look, marks: Marks, look_at: Callable[[int], Look | None] = look_at
) -> Hang | None:
    """Why a training that has waited since the look `first` gets no batch; None: it has ended."""
    last = look_at(first.training.state.pid)
    if last is None:
        return None
    silent_ns = round(SECOND_NS * (last.time_s - first.time_s))
    return _judged([first, last], marks, silent_ns)[0]


def _judged(looks: list[Look], marks: Marks, *known: Any) -> tuple[Hang, Look]:
    """Why no batch comes, as `hang_of` says it, and the last look that it says it by."""
    hang = hang_of(looks, marks, *known)
    # A pause would interrupt what writes, or works.
    if hang.is_hang and hang.pid is not None and hang.waits is not WaitsIn.WRITE:
        looks = [looks[0], with_native_frames(looks[1], hang.pid)]
        hang = hang_of(looks, marks, *known)
    return hang, looks[1]


@dataclass(frozen=True, slots=True)
class Found:
    """What was found where no batch came.

    `hang` is what all wait for, and `ranks` has one for each process that was looked at. `path` has
    all stacks; None where they could not be written.
    """

    hang: Hang
    ranks: tuple[Hang, ...]
    path: Path | None


@dataclass(frozen=True, slots=True)
class QuietTraining:
    """One process that trains, and for how long it got no batch from any of its loaders."""

    pid: int
    rank: int | None
    world_size: int | None
    silent_ns: int
    limit_ns: int
    longest_gap_ns: int
    is_open: bool
    batches: int


def _has_open(pid: int, path: Path) -> bool:
    """Whether that process of this machine has the file at `path` open."""
    with suppress(psutil.Error):
        return any(file.path == str(path.resolve()) for file in psutil.Process(pid).open_files())
    return False


class HangWatch:
    """Looks after the trainings that write the log at `path`, or the logs in that folder.

    They may hang once they got no batch for `hang_after_s`, by default TIMES_LONGEST_WAIT times as
    long as ever before, and LEAST_NS at least. With `redact`, the file of stacks has no paths and
    no command lines. The last arguments are for tests.
    """

    def __init__(
        self,
        path: Path,
        hang_after_s: float | None = None,
        *,
        redact: bool = False,
        now_s: Callable[[], float] = time.time,
        look_at: Callable[[int], Look | None] = look_at,
        kernel: Callable[[], KernelMemory] = memory,
    ) -> None:
        self._path, self._hang_after_s = path, hang_after_s
        self._redact = redact
        self._now_s, self._look_at = now_s, look_at
        self._logs: dict[Path, FollowedRun] = {}
        self._before = kernel()
        self._marks = marks_of(*declared_in_stacks())
        self._host = socket.gethostname()
        self._due_s = self._again_s = 0.0
        self._first: dict[int, tuple[int, Look]] = {}
        self._said: dict[int, int] = {}
        self._mentioned: dict[int, int] = {}

    def look(self) -> Found | None:
        """What was found, once in each silence; once more where it becomes a hang.

        To be called often: it does something only when that is due. Raises OSError where the folder
        cannot be read.
        """
        now_s = self._now_s()
        if now_s < self._due_s:
            return None
        self._due_s = now_s + INTERVAL_S
        trainings = self._trainings(now_s)
        quiet = [each for each in trainings if each.silent_ns >= each.limit_ns]
        unsaid = [each for each in quiet if self._said.get(each.pid) != each.batches]
        if not unsaid or now_s < self._again_s:
            self._first = self._first if unsaid else {}
            return None
        # Other ranks wait for those, or are waited for.
        least_ns = min(each.silent_ns for each in unsaid) // 2
        involved = [each for each in trainings if each.silent_ns >= least_ns]
        limit_s = min(each.limit_ns for each in unsaid) / SECOND_NS
        if not self._first:
            self._first = self._looks(involved)
            self._due_s = now_s + min(max(limit_s / 10, SHORTEST_S), LONGEST_S)
            return None
        self._again_s = now_s + max(limit_s / AGAIN, SHORTEST_S)
        return self._found(unsaid, involved)

    def _found(self, unsaid: list[QuietTraining], trainings: list[QuietTraining]) -> Found | None:
        first, self._first = self._first, {}
        last = self._looks(trainings)
        judged = {
            training.pid: _judged(
                [first[training.pid][1], last[training.pid][1]],
                self._marks,
                training.silent_ns,
                training.rank,
                training.batches,
                self._before,
            )
            for training in trainings
            if training.pid in first
            and training.pid in last
            and first[training.pid][0] == training.batches
        }
        if any(training.pid not in judged for training in unsaid):
            return None  # it has ended, or got a batch meanwhile
        ranks = tuple(hang for hang, _ in judged.values())
        hang = hang_of_job(ranks, max(training.world_size or 1 for training in trainings))
        now = {training.pid: training.batches for training in trainings}
        is_news = hang.is_hang or not now.items() <= self._mentioned.items()
        if hang.is_hang:
            self._said |= now
        if not is_news or (hang.cause is Cause.STEP and not self._is_long(hang, trainings)):
            return None
        self._mentioned |= now
        return Found(hang, ranks, self._written(ranks, [look for _, look in judged.values()]))

    @staticmethod
    def _is_long(hang: Hang, trainings: list[QuietTraining]) -> bool:
        """Whether a step, within an epoch, takes far longer than any before."""
        return any(
            training.is_open and hang.silent_ns > TIMES_LONGEST_GAP * training.longest_gap_ns
            for training in trainings
            if training.pid == hang.training
        )

    def _looks(self, trainings: list[QuietTraining]) -> dict[int, tuple[int, Look]]:
        """What each process that goes on does, and how many batches it had by then."""
        looks = ((training, self._look_at(training.pid)) for training in trainings)
        return {each.pid: (each.batches, look) for each, look in looks if look is not None}

    def _trainings(self, now_s: float) -> list[QuietTraining]:
        """The processes of this machine that go on, by what their logs say."""
        silences: dict[int, list[Silence]] = defaultdict(list)
        for path, silence in self._silences(now_s):
            pid, host = (silence.environment.get(name) for name in ("pid", "host"))
            if not isinstance(pid, int) or not psutil.pid_exists(pid):
                continue
            if host == self._host or (is_hidden(host) and _has_open(pid, path)):
                silences[pid].append(silence)
        return [self._training(pid, of_process) for pid, of_process in silences.items()]

    def _training(self, pid: int, silences: list[Silence]) -> QuietTraining:
        waits_ns = (silence.longest_wait_ns or 0 for silence in silences)
        by_default = max(TIMES_LONGEST_WAIT * max(waits_ns), LEAST_NS)
        hang_after_s, environment = self._hang_after_s, silences[0].environment
        rank, world_size = (environment.get(name) for name in ("rank", "world_size"))
        return QuietTraining(
            pid,
            rank if isinstance(rank, int) else None,
            world_size if isinstance(world_size, int) else None,
            min(silence.silent_ns for silence in silences),
            by_default if hang_after_s is None else round(hang_after_s * SECOND_NS),
            max(silence.longest_gap_ns or 0 for silence in silences),
            any(silence.is_open for silence in silences),
            sum(silence.batches for silence in silences),
        )

    def _silences(self, now_s: float) -> Iterator[tuple[Path, Silence]]:
        for path in self._paths():
            followed = self._logs.setdefault(path, FollowedRun(path))
            with suppress(LoadevalError):  # it may be damaged, or another file
                if followed.read():
                    silence = followed.run.silence(followed.quiet_ns(now_s))
                    if silence is not None:
                        yield path, silence

    def _paths(self) -> list[Path]:
        if not self._path.is_dir():
            return [self._path]
        return sorted(self._path.glob("*.jsonl"))

    def _written(self, ranks: tuple[Hang, ...], looks: list[Look]) -> Path | None:
        """The new file with all stacks; None where it cannot be written."""
        is_folder = self._path.is_dir()
        for number in range(1, MOST_FILES):
            name = f"hang-{number}.txt" if is_folder else f"{self._path.stem}-hang-{number}.txt"
            path = self._path / name if is_folder else self._path.with_name(name)
            try:
                with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(stacks_text(ranks, looks, redact=self._redact))
            except FileExistsError:
                continue
            except OSError:
                return None
            return path
        return None

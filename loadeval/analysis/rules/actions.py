"""An action: one thing to do, where, and what training gains; and a plan, of several in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from loadeval.analysis.predict.prediction import Limit, Range
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice, Rule


class Target(Enum):
    """What is to be changed, what is changed most easily first."""

    SETTING = "setting"
    ENVIRONMENT = "environment"
    CODE = "code"
    DATA = "data"
    MACHINE = "machine"
    MEASUREMENT = "measurement"


TARGETS: dict[Enum, Target] = {
    **dict.fromkeys(
        (
            Advice.RAISE,
            Advice.LOWER,
            Advice.LOWER_WORKERS,
            Advice.TRY_WORKERS,
            Advice.LOAD_IN_TRAINING,
            Advice.ADD_WORKERS_OR_THREADS,
            Advice.RAISE_PREFETCH_DEPTH,
            Advice.PREFETCH_MORE,
            Advice.OUT_OF_ORDER,
            Advice.KEEP_WORKERS,
            Advice.TRY_PERSISTENT_WORKERS,
            Advice.PIN_MEMORY,
            Advice.RAISE_CONCURRENCY,
            Advice.RAISE_THREADS,
        ),
        Target.SETTING,
    ),
    **dict.fromkeys(
        (
            Advice.ALLOW_IN_WORKERS,
            Advice.ALLOW_AFTER_IMPORTS,
            Advice.SHARE_BY_FILE,
            Advice.SEND_LESS_OFTEN,
            Advice.ONE_THREAD_EACH,
            Advice.FEWER_THREADS,
            Advice.FREE_CPUS,
        ),
        Target.ENVIRONMENT,
    ),
    **dict.fromkeys(
        (
            Advice.STORE_UNCOMPRESSED,
            Advice.PARSE_ONCE,
            Advice.SMALLER_ROW_GROUPS,
            Advice.CHUNK_BY_SAMPLE,
            Advice.READ_WHAT_IS_USED,
            Advice.READ_LESS,
            Advice.CACHE_LOCALLY,
            Advice.FETCH_LESS,
            Advice.MORE_SHARDS,
            Advice.EQUAL_SHARDS,
        ),
        Target.DATA,
    ),
    Advice.START_WITH_CPUS: Target.MACHINE,
    **dict.fromkeys(
        (Advice.ALTERNATE, Advice.MEASURE_QUIET, Advice.FIND_SLOWDOWN, Advice.WARM_UP_CACHE),
        Target.MEASUREMENT,
    ),
}
"""What each advice changes; that is code where it is not said here, nor in EXPLAINS."""
EXPLAINS: frozenset[Enum] = frozenset(
    {
        Advice.LOOK_AT_INIT,
        Advice.UNSET_BINDING,
        Advice.NO_MORE_WORKERS,
        Advice.NO_WORKERS_HELP,
        Advice.LOADING_EVICTS_CACHES,
        Advice.CPUS_BUSY,
        Advice.CPU_TIME_LIMITED,
        Advice.CPU_USE_NOT_READ,
        Advice.CPUS_NEEDED,
        Advice.CPUS_FREE,
        Advice.CPUS_AND_LOCK_FREE,
        Advice.WORKERS_NEEDED,
        Advice.WORKERS_MOSTLY_WAIT,
        Advice.NO_CPU_FOR_WORKER,
        Advice.CHEAPER_ALSO,
        Advice.CHEAPER_INSTEAD,
        Advice.HIDES_STALL,
        Advice.HIDES_PART_OF_STALL,
        Advice.HIDES_QUEUE_LENGTH,
        Advice.MAYBE_PINNING,
        Advice.WORKER_START_AT_MOST,
        Advice.MOSTLY_IN,
        Advice.LOOK_AT,
        Advice.SHARDS_MADE_BY,
        Advice.SHARDS_LEFT_OVER,
        Advice.WORKER_START_PARTS,
        Advice.WORKERS_START_IN_TURN,
        Advice.KEEP_LOADER,
    }
)
"""Advice that only says more about another, or to change nothing."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do.

    `change` is what: a code of Advice with its numbers, such as `setting` and `proposed`, or `name`
    and `times`. `place` is where, FILE:LINE; None where that is not known. `speedup` is what
    training gains by this and all actions before it, over whole epochs, with its expected range.
    Where it is only bounded, `at_most` is with all gone that was found, and `at_least` with none of
    it. All are None where nothing is predicted. `rules` are those of the findings that ask for it,
    and it is `possible` where all of them are only possible.
    """

    target: Target
    change: Remark
    place: str | None
    speedup: Range | None = None
    at_least: float | None = None
    at_most: float | None = None
    rules: tuple[Rule, ...] = ()
    possible: bool = False

    @property
    def predicted(self) -> float | None:
        """The speed-up, or what it is at most; None where nothing is predicted."""
        return self.at_most if self.speedup is None else self.speedup.value


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in order; actions of which nothing is predicted come last.

    `limit` is what training is held up by once the predicted ones are done; None where that is not
    known. `most` is the speed-up with ideal loading; None where it was not measured.
    """

    actions: tuple[Action, ...] = ()
    limit: Limit | None = None
    most: float | None = None

    @property
    def whole(self) -> Action | None:
        """The last action that is predicted, with what all of them bring; None where none is."""
        predicted = [action for action in self.actions if action.predicted is not None]
        return predicted[-1] if predicted else None


def target_of(change: Remark) -> Target | None:
    """What following an advice changes; None where it only explains another."""
    if change.code in EXPLAINS:
        return None
    if change.code is Advice.FREE_CPUS and "others_cpus" in change.values:
        return Target.MACHINE
    return TARGETS.get(change.code, Target.CODE)

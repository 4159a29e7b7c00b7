"""Which processes train, and which load for them."""

from __future__ import annotations

import pytest

from loadeval.attach.marks import trainings_among
from loadeval.probes.looks import LookedAt
from loadeval.probes.stacks import NOT_PERMITTED, NOT_PYTHON, ProcessStacks, ThreadStacks
from tests.attach import seen as attached
from tests.attach.seen import MARKS, STANDARD, frame

TRAIN = ("python", "train.py")
SPAWN = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
TRACKER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(3)")
FORKSERVER = ("python", "-c", "from multiprocessing.forkserver import main; main()")
TORCHRUN = (
    frame("_invoke_run", f"{attached.PACKAGES}/torch/distributed/elastic/agent/server/api.py"),
    *attached.MAIN,
)
SUBPROCESS = (frame("Popen.wait", f"{STANDARD}/subprocess.py"), *attached.MAIN)


def seen(
    pid: int, parent: int, *stacks: attached.Stack, command: tuple[str, ...] = TRAIN
) -> LookedAt:
    """A process with a main thread, and others where there are more stacks."""
    threads = tuple(
        ThreadStacks(pid + 1000 * number, "thread", (stack,)) for number, stack in enumerate(stacks)
    )
    return LookedAt(pid, parent, command, stacks=ProcessStacks(pid, threads))


def unread(pid: int, parent: int, command: tuple[str, ...] = TRAIN) -> LookedAt:
    """A process whose stacks cannot be read."""
    return LookedAt(pid, parent, command, problem=NOT_PERMITTED)


SHELL = LookedAt(1, 0, ("sh", "train.sh"), problem=NOT_PYTHON)
FORKED = (seen(1, 0, attached.STEP), seen(2, 1, attached.FETCH), seen(3, 1, attached.ASK))


@pytest.mark.parametrize("pid", [1, 2, 3])
def test_any_process_of_a_training_leads_to_it(pid: int) -> None:
    (training,) = trainings_among(FORKED, pid, MARKS)
    assert (training.pid, training.workers) == (1, (2, 3))
    assert training.command == TRAIN


def test_workers_of_a_fork_server_are_of_the_training() -> None:
    """The server has started them, and the resource tracker is a helper."""
    processes = (
        seen(1, 0, attached.WAIT),
        seen(2, 1, attached.STEP, command=FORKSERVER),
        seen(3, 2, attached.FETCH, command=FORKSERVER),
        seen(4, 1, attached.STEP, command=TRACKER),
    )
    assert trainings_among(processes, 3, MARKS) == trainings_among(processes, 1, MARKS)
    (training,) = trainings_among(processes, 1, MARKS)
    assert training.workers == (3,)


RANKS = seen(2, 1, attached.STEP), seen(3, 1, attached.STEP)
LOADING = seen(4, 3, attached.FETCH), seen(5, 2, attached.ASK)
CHILD = seen(2, 1, attached.STEP)


@pytest.mark.parametrize(
    ("processes", "trainings"),
    [
        ((seen(1, 0, TORCHRUN), *RANKS, *LOADING), [2, 3]),
        ((seen(1, 0, SUBPROCESS), CHILD), [2]),
        # A program that the training started beside is not another one.
        ((SHELL, CHILD, seen(3, 2, attached.STEP)), [2]),
        # It polls, say, which no frame shows.
        ((seen(1, 0, attached.STEP), CHILD, seen(3, 2, attached.FETCH)), [2]),
    ],
    ids=["torchrun", "a program that waits", "a shell", "a program that polls"],
)
def test_what_started_trainings_leads_to_them(
    processes: tuple[LookedAt, ...], trainings: list[int]
) -> None:
    assert [training.pid for training in trainings_among(processes, 1, MARKS)] == trainings


def test_without_stacks_forked_and_spawned_children_are_workers() -> None:
    processes = (
        *(unread(1, 0), unread(2, 1), unread(3, 1, SPAWN), unread(4, 1, TRACKER)),
        *(unread(5, 1, FORKSERVER), unread(6, 5, FORKSERVER)),
    )
    (training,) = trainings_among(processes, 1, MARKS)
    assert training.workers == (2, 3, 6)


def test_a_training_in_a_process_of_a_pool_is_one() -> None:
    """As where settings are searched: it loads for nobody."""
    pool = attached.frame("_process_worker", f"{STANDARD}/concurrent/futures/process.py")
    processes = (seen(1, 0, attached.MAIN), seen(2, 1, (*attached.STEP, pool)))
    assert [training.pid for training in trainings_among(processes, 2, MARKS)] == [2]

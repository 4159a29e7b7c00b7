"""kill -9 at any moment: the log reads, and at most a second of it is missing."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from loadeval import read_run
from tests.injected.reading import IN_EACH_MODE, MODES
from tests.injected.zygote import Zygote, kill

ENDLESS = """
times = os.open("times", os.O_WRONLY | os.O_CREAT)
loader = measured(Loader(10**6, 0.002))
print("created", flush=True)
for batch in loader:
    os.write(times, time.perf_counter_ns().to_bytes(8, "little"))
    time.sleep(0.002)
"""
LONGEST_S = 1.6
"""The longest time a program may run before it is killed."""
MOST_MISSING_S = 1.0
AT_ONCE = 6


def missing_s(zygote: Zygote, folder: Path, mode: str, after_s: float) -> float:
    """The time for which a killed program served batches that its log does not have."""
    program = zygote.start(ENDLESS, folder, mode)
    program.prints("created")
    time.sleep(after_s)
    now_ns = time.perf_counter_ns()
    kill(program)
    run = read_run(folder / "run.jsonl")
    assert not run.closed
    served_ns = np.fromfile(folder / "times", np.int64)
    assert run.batches <= len(served_ns) + 1
    lacking = served_ns[run.batches :]
    return float(now_ns - lacking[0]) / 1e9 if len(lacking) else 0.0


def check(zygote: Zygote, folder: Path, moments: list[tuple[str, float]]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lost_s = pool.map(
            lambda numbered: missing_s(zygote, folder / str(numbered[0]), *numbered[1]),
            enumerate(moments),
        )
        worst = max(lost_s)
    assert worst <= MOST_MISSING_S


def test_programs_that_are_killed(zygote: Zygote, tmp_path: Path) -> None:
    """One in each mode that has just begun, and one that was writing for a while."""
    check(zygote, tmp_path, [(mode, after_s) for mode in MODES for after_s in (0.1, 1.2)])


@pytest.mark.check
@IN_EACH_MODE
def test_a_hundred_random_moments(zygote: Zygote, tmp_path: Path, mode: str) -> None:
    moment_s = partial(random.Random(mode).uniform, 0, LONGEST_S)
    check(zygote, tmp_path, [(mode, moment_s()) for _ in range(100)])

"""What is read of Python's lock: threads that keep it are waited for, and no others."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.probes.test_threads import at_work, count, lock_waits_ns, read_beside_training

if TYPE_CHECKING:
    from collections.abc import Callable

NO_WAIT_NS = 2_000_000
MATRIX = np.ones((400, 400))


def test_a_thread_that_runs_python_code_is_waited_for() -> None:
    """About as long as it may run before it must give up the lock."""
    with at_work(count, "count"):
        waits_ns = lock_waits_ns(read_beside_training(8))
    assert max(waits_ns) > sys.getswitchinterval() * 1e9 / 5


@pytest.mark.parametrize("work", [lambda: time.sleep(0.01), lambda: np.dot(MATRIX, MATRIX)])
def test_code_that_gives_up_the_lock_is_not_waited_for(work: Callable[[], object]) -> None:
    with at_work(work, "release", 2):
        waits_ns = lock_waits_ns(read_beside_training(8))
    assert np.median(waits_ns) < NO_WAIT_NS

"""Run logs of scripted loaders, on a clock that moves as it is told, byte for byte.

Other than on another machine and day: what the header tells of them, and what a window counts of
the system. They are compared with the files in tests/golden/logs; `make golden` writes these.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadeval import LoaderEvaluator, compare_backends
from loadeval.testing import FakeClock, ScriptedLoader

Golden = Callable[[str, Any], None]

MS = 1_000_000
OF_THE_DAY = ("run_id", "created", "environment")
OF_THE_COMPARISON = "comparison"
OF_THE_SYSTEM = re.compile(r'(?<="workers_cpu_ns":)[^,}]+|(?<="minor_faults":)[^,}]+')
EPOCHS = 2


@pytest.fixture(autouse=True)
def _no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is done on one thread, as where memory is short; else two would take lines in turns."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def batches(count: int) -> list[dict[str, Any]]:
    """Batches of an array and a list, of which the last one is smaller."""
    sizes = [4] * (count - 1) + [3]
    return [
        {"x": np.arange(number, number + 8 * size).reshape(size, 8), "y": [number] * size}
        for number, size in enumerate(sizes)
    ]


def padded(count: int) -> list[dict[str, Any]]:
    """Batches of sequences, of which all but one are shorter."""
    columns = np.arange(12)
    lengths = [np.array([12, 1 + number % 11, 3]) for number in range(count)]
    return [{"attention_mask": (columns < each[:, None]).astype(int)} for each in lengths]


def waits_ns(count: int) -> list[int]:
    """Waits between 2 and 20 ms, of which one in 23 is of 150 ms."""
    random = np.random.default_rng(7)
    waits = random.integers(2 * MS, 20 * MS, count)
    waits[11::23] = 150 * MS
    return [int(wait) for wait in waits]


def step_of(clock: FakeClock) -> Callable[[object], None]:
    """A training step of 8 ms, and a little more each time."""
    more_ns = (1000 * (done % 97) for done in itertools.count())
    return lambda _: clock.advance(8 * MS + next(more_ns))


def logged(
    folder: Path,
    served: list[dict[str, Any]],
    mode: str = "log",
    *,
    leaves: bool = False,
    **options: Any,
) -> list[Path]:
    """The log of EPOCHS, of which the first is left after ten batches where `leaves`."""
    clock, path = FakeClock(), folder / "run.jsonl"
    step, loader = step_of(clock), ScriptedLoader(served, waits_ns(len(served)), clock)
    with LoaderEvaluator(
        loader, mode, log_file=path, probes=(), seed=3, clock=clock, **options
    ) as evaluator:
        for epoch in range(EPOCHS):
            for number, batch in enumerate(evaluator):
                step(batch)
                if leaves and (epoch, number) == (0, 9):
                    break
    return [path]


def failing(folder: Path) -> list[Path]:
    """The log of an epoch that its loader ends with an error."""
    clock, path = FakeClock(), folder / "run.jsonl"
    until: list[Any] = [*batches(5), OSError("no such file")]
    broken = ScriptedLoader(until, waits_ns(6), clock)
    with (
        LoaderEvaluator(broken, log_file=path, probes=(), clock=clock) as evaluator,
        pytest.raises(OSError, match="no such file"),
    ):
        list(map(step_of(clock), evaluator))
    return [path]


def compared(folder: Path) -> list[Path]:
    """The logs of two backends, one of which is slower."""
    clock = FakeClock()
    slower = ScriptedLoader(batches(90), [2 * wait for wait in waits_ns(90)], clock)
    backends = {"slow": slower, "fast": ScriptedLoader(batches(90), waits_ns(90), clock)}
    compare_backends(
        backends,
        step_of(clock),
        batches=60,
        rounds=3,
        log_dir=folder,
        seed=3,
        probes=(),
        stages=False,
        clock=clock,
    )
    return [folder / f"{name}.jsonl" for name in backends]


RUNS: dict[str, Callable[[Path], Sequence[Path]]] = {
    "log": partial(logged, served=batches(40), unit="images", warmup=2, leaves=True),
    "log-of-some-batches": partial(logged, served=batches(40), batches=50),
    "log-padded": partial(logged, served=padded(40)),
    "replay": partial(logged, served=batches(40), mode="replay", num_cached_batches=6),
    "replay-after": partial(logged, served=batches(40), mode="replay", replay_after=15),
    "alternate": partial(logged, served=batches(400), mode="alternate"),
    "alternate-pairs": partial(
        logged, served=batches(400), mode="alternate", pairs=3, name="three"
    ),
    "failing": failing,
    "backends": compared,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_log_has_the_same_bytes(name: str, tmp_path: Path, golden: Golden) -> None:
    logs = RUNS[name](tmp_path)
    for log in logs:
        header, rest = log.read_bytes().decode("ascii").split("\n", 1)
        fields = json.loads(header)
        assert header == json.dumps(fields, separators=(",", ":"))
        fields |= dict.fromkeys(OF_THE_DAY, "not compared")
        if OF_THE_COMPARISON in fields["settings"]:
            fields["settings"][OF_THE_COMPARISON] = "not compared"
        kept = f"{json.dumps(fields, separators=(',', ':'))}\n{OF_THE_SYSTEM.sub('0', rest)}"
        golden(f"logs/{name}{f'-{log.stem}' if len(logs) > 1 else ''}.jsonl", kept)

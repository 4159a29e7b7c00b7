"""tune: what it measures, in which order, and what it chooses; no clock runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from loadeval import Change, LoadevalWarning, Tuning, UsageError, tune, tuning
from loadeval.adapter import IterableAdapter
from loadeval.errors import LoadevalError
from loadeval.estimate.stats import Estimate
from loadeval.testing import FakeClock, ScriptedLoader

MS = 1_000_000
IMAGES = np.zeros((4, 3), np.uint8)
PRINTED = """\
Training is 2.50x [2.50x, 2.50x] as fast with num_workers=4 as with
num_workers=1.

samples/s                measured  speed-up              predicted
num_workers=1 (present)  80.0
num_workers=2            133       1.67x [1.67x, 1.67x]
num_workers=4            200       2.50x [2.50x, 2.50x]

Nothing was predicted: ScriptedLoader does not tell what happens inside the
loader, so nothing can be predicted from it; expected a run of loadeval diagnose
-- COMMAND, of a loader that loadeval looks into.

Speed-ups are over the present settings, measured in turns. Brackets: 95% CI of
what was measured, expected range of what was predicted.

Change where the loader is made: num_workers=4"""


class Loaders:
    """Loaders whose batches take 40 ms by a clock, divided by their workers; a step takes 10 ms."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.made: list[Mapping[str, Any]] = []
        self.wait_ns: Callable[[int], int] = lambda workers: 40 * MS // max(workers, 1)

    def make(self, num_workers: int = 1, **more: Any) -> ScriptedLoader:
        self.made.append({"num_workers": num_workers, **more})
        return ScriptedLoader([IMAGES] * 60, [self.wait_ns(num_workers)] * 60, self.clock)

    def step(self, _batch: object) -> None:
        self.clock.advance(10 * MS)

    def tune(self, make: Any = None, step: Any = None, **options: Any) -> Tuning:
        fixed = {"batches": 20, "settings": {"num_workers": 1}, "space": {"num_workers": [2, 4]}}
        options = {**fixed, **options}
        return tune(make or self.make, step or self.step, clock=self.clock, **options)


@pytest.fixture(name="loaders")
def _loaders() -> Loaders:
    return Loaders()


@pytest.fixture(name="predicted")
def _predicted(monkeypatch: pytest.MonkeyPatch) -> dict[int, Estimate]:
    """Speed-ups by the number of workers that the model predicts; others are 0.5x."""
    speedups: dict[int, Estimate] = {}

    def simulate(change: Change) -> Estimate:
        return speedups.get(change.settings.get("num_workers", 1), Estimate(0.5, 0.4, 0.6))

    model = SimpleNamespace(
        settings={"num_workers": 1}, costs=None, parts=(), run=None, simulate=simulate
    )
    monkeypatch.setattr(tuning, "Model", SimpleNamespace(of=lambda _: model))
    monkeypatch.setattr(tuning, "memory", lambda *_: (0.0, 0.0, []))
    return speedups


def tried(result: Tuning) -> list[dict[str, Any]]:
    return [dict(trial.changes) for trial in result.trials]


def test_the_fastest_is_chosen_and_printed(loaders: Loaders) -> None:
    result = loaders.tune()
    assert result.best == {"num_workers": 4}
    assert str(result) == PRINTED


def test_what_is_not_shown_to_be_faster_is_not_chosen(loaders: Loaders) -> None:
    """On average 4 workers are faster, but not in each turn."""
    waits = iter([40, 40, 30, 50, 40, 40, 20, 50, 40] * 10)
    loaders.wait_ns = lambda _: next(waits) * MS
    result = loaders.tune(space={"num_workers": [4]}, rounds=2)
    assert result.best == {"num_workers": 1}
    assert result.chosen.changes == {}
    first, *_ = str(result).splitlines()
    assert first == "Keep num_workers=1: no other settings were shown to be 3% faster."


def test_what_fails_is_told_and_the_others_go_on(loaders: Loaders) -> None:
    """A loader that cannot be made is made once."""

    def make(num_workers: int) -> ScriptedLoader:
        if num_workers == 2:
            raise OSError("gone")
        return loaders.make(num_workers)

    result = loaders.tune(make)
    assert result.best == {"num_workers": 4}
    assert result.trials[1].error == "OSError: gone"
    assert "With num_workers=2 it failed: OSError: gone" in str(result)


def test_an_error_with_the_present_settings_is_raised(loaders: Loaders) -> None:
    def make(num_workers: int) -> ScriptedLoader:
        raise OSError(num_workers)

    with pytest.raises(OSError, match="1"):
        loaders.tune(make)


def interrupted(loaders: Loaders, steps: int) -> Callable[[object], None]:
    """A step that Ctrl-C ends after as many."""
    left = iter(range(steps))

    def step(batch: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        loaders.step(batch)

    return step


def test_ctrl_c_ends_it_with_what_is_known(loaders: Loaders) -> None:
    """In the third turn, after a look of three blocks, each with a head of 3 batches."""
    result = loaders.tune(step=interrupted(loaders, 3 * 23 + 1 + 7 * 24))
    assert result.best == {"num_workers": 4}
    assert result.notes[-1] == "Ended early, by Ctrl-C or another signal."


def test_the_queue_and_the_first_epoch_start_do_not_count(loaders: Loaders) -> None:
    """The first batch of a block takes longer by a second."""
    loader = ScriptedLoader([IMAGES] * 60, [1_000 * MS, *[10 * MS] * 59], loaders.clock)
    result = loaders.tune(lambda num_workers: loader, space={"num_workers": [2]})  # noqa: ARG005 - it makes no difference
    assert result.trials[0].throughput == pytest.approx(200)


def test_what_a_device_still_does_is_waited_for(
    loaders: Loaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the adapter's fence: a step only hands over what takes 10 ms."""
    waiting: list[object] = []

    def fence(_adapter: IterableAdapter) -> None:
        loaders.clock.advance(10 * MS * len(waiting))
        waiting.clear()

    monkeypatch.setattr(IterableAdapter, "fence", fence)
    result = loaders.tune(step=waiting.append)
    assert result.trials[0].throughput == pytest.approx(80)


def test_predictions_choose_what_is_measured(
    loaders: Loaders, predicted: dict[int, Estimate]
) -> None:
    """The cheapest of the best, and its neighbours whose range reaches that; no others."""
    for workers, value in ((2, 1.6), (3, 2.0), (4, 2.02), (6, 1.9), (8, 1.8), (12, 1.7)):
        predicted[workers] = Estimate(value, value - 0.3, value + 0.3)
    result = loaders.tune(space=None)
    names = [changes.get("num_workers") for changes in tried(result)]
    assert names == [None, 3, 4, 6, 8]
    assert result.trials[1].predicted is not None
    assert "2.00x [1.70x, 2.30x]" in str(result)
    assert "Nothing was predicted" not in str(result)


def test_nothing_is_measured_where_no_gain_is_predicted(
    loaders: Loaders, predicted: dict[int, Estimate]
) -> None:
    predicted[2] = Estimate(1.01, 0.9, 1.1)
    result = loaders.tune(space=None)
    assert tried(result) == [{}]
    assert len(loaders.made) == 1
    assert "No other settings are predicted to be 3% faster." in str(result)


def test_a_space_that_cannot_be_predicted_may_hold_four(loaders: Loaders) -> None:
    with pytest.raises(UsageError, match="5 settings are too many to measure"):
        loaders.tune(space={"num_workers": [2, 3, 4, 5, 6]})


def test_without_workers_nothing_that_needs_them_is_passed(loaders: Loaders) -> None:
    loaders.tune(
        settings={"num_workers": 1, "prefetch_factor": 4},
        space={"prefetch_factor": [2, 4], "num_workers": [0]},
    )
    assert {"num_workers": 0} in loaders.made
    assert {"num_workers": 0, "prefetch_factor": 4} not in loaders.made


def test_the_samples_must_be_known_to_tune_their_number(loaders: Loaders) -> None:
    def make(num_workers: int, batch_size: int = 4) -> ScriptedLoader:
        assert num_workers
        assert batch_size
        return ScriptedLoader([object()] * 60, [MS] * 60, loaders.clock)

    with pytest.raises(UsageError, match="the samples of a batch are not known"):
        loaders.tune(make, space={"batch_size": [8]})


@pytest.mark.parametrize("options", [{"batches": 0}, {"rounds": 0}])
def test_wrong_arguments_are_named(loaders: Loaders, options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="expected 1 or more of each"):
        loaders.tune(**options)


def test_the_look_into_a_long_epoch_is_long_enough(loaders: Loaders) -> None:
    """Its blocks are sized for the batches that it has, not for those of the epoch."""

    def make(num_workers: int) -> ScriptedLoader:
        assert num_workers
        return ScriptedLoader([IMAGES] * 9_000, [MS // 10] * 9_000, loaders.clock)

    def step(_batch: object) -> None:
        loaders.clock.advance(MS // 10)

    assert loaders.tune(make, step, rounds=1).unit == "samples"


def test_samples_are_known_of_a_look_that_is_too_short_for_blocks(loaders: Loaders) -> None:
    result = loaders.tune(batches=2, rounds=1)
    assert result.unit == "samples"


def test_a_loader_without_batches_is_one_clear_error(loaders: Loaders) -> None:
    def make(num_workers: int) -> list[object]:
        return [None] * (num_workers - 1)

    no_batch = pytest.warns(LoadevalWarning, match="gave no batch")
    with no_batch, pytest.raises(LoadevalError, match="expected more: raise"):
        loaders.tune(make)


def test_a_callable_is_called_for_each_epoch_alone(loaders: Loaders) -> None:
    """Of 60 batches: the run before has two."""
    loaders.tune(lambda num_workers: lambda: loaders.make(num_workers), rounds=1)
    assert [made["num_workers"] for made in loaders.made] == [1, 1, *(1, 2, 4, 4, 2, 1)]

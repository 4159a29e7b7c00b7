"""A loader that is tuned within the epochs of a training: what is served, and what is found."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from loadeval.analysis.predict.tuning import MOST_IN_TURNS, Stop, TrialState
from loadeval.errors import UsageError
from loadeval.runtime.settings import EvaluatorSettings
from loadeval.testing import FakeClock
from loadeval.tuning import forecasts, tuner
from loadeval.tuning.in_training import TrainingTuner
from tests.fed import MS, Feeding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Training:
    """Trains for 10 ms on each batch, by a clock, while its loader is tuned; notes the samples."""

    def __init__(self, batches: int = 600, max_cache_bytes: int = 2**30, **options: Any) -> None:
        self.clock = FakeClock()
        self.batches = batches
        self.feeding = Feeding(self.clock, batches, **options)
        self.ends = 0
        self.seen: list[int] = []
        settings = EvaluatorSettings(
            mode="alternate",
            samples=None,
            unit="samples",
            max_cache_bytes=max_cache_bytes,
            overwrite=False,
            pairs=3,
            batches=24,
            seed=0,
            clock=self.clock,
            probes=(),
            stages=False,
        )
        self.tuner = TrainingTuner(self.feeding.loader, settings, SPACE, 6, batches, self.note_end)

    def note_end(self) -> None:
        self.ends += 1

    def iterate(self) -> Iterator[Any]:
        return self.tuner.epoch(self.feeding, self.feeding.epoch(self.batches))

    def train(self, batches: Iterator[Any]) -> list[int]:
        """Train on these; returns the samples."""
        seen: list[int] = []
        for batch in batches:
            self.clock.advance(10 * MS)
            seen += batch.tolist()
        return seen

    def epoch(self, most: int | None = None) -> list[int]:
        return self.train(islice(self.iterate(), most))

    @property
    def whole(self) -> list[int]:
        return list(range(2 * self.batches))

    @property
    def settings(self) -> list[Any]:
        """The numbers of workers that were tried."""
        assert self.tuner.report is not None
        return [trial.settings["num_workers"] for trial in self.tuner.report.trials]


SPACE: Mapping[str, list[Any]] = {"num_workers": [0, 1, 2, 4], "prefetch_factor": [2]}


@pytest.fixture(autouse=True)
def _without_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the inside, and four settings are tried in turns."""

    class Without:
        @classmethod
        def of(cls, _runs: object) -> Without:
            raise UsageError("nothing is known of the inside")

    for module in (tuner, forecasts):
        monkeypatch.setattr(module, "LoaderModel", Without)
    monkeypatch.setattr(tuner, "cpus", lambda: 2)


def test_each_batch_is_served_once_in_order() -> None:
    """In each of the epochs that settings take turns in, and in those after it."""
    training = Training()
    for _ in range(3):
        assert training.epoch() == training.whole
    assert training.tuner.is_over
    assert training.ends == 1


def test_only_what_comes_from_a_refilled_queue_counts() -> None:
    """The throughputs are exact: neither the first batch of a block, nor its last ones count."""
    training = Training()
    training.epoch()
    training.epoch()
    report = training.tuner.report
    assert report is not None
    rates = {
        trial.settings["num_workers"]: trial.throughput.value
        for trial in report.trials
        if trial.throughput is not None
    }
    assert rates[1] == pytest.approx(2 / 0.050)
    assert rates[2] == pytest.approx(2 / 0.030)
    assert rates[4] == pytest.approx(2 / 0.020)
    assert report.best.settings == {"num_workers": 4}
    assert training.tuner.changes == {"num_workers": 4}
    assert report.gain is not None
    assert report.gain.value == pytest.approx(2.5, rel=0.02)  # with the starts of epochs


def test_the_ideal_arm_says_how_much_is_left() -> None:
    """With four workers a batch takes 10 ms beside a step of 10 ms."""
    training = Training()
    training.epoch()
    training.epoch()
    assert training.tuner.report is not None
    assert training.tuner.report.left is not None
    assert training.tuner.report.left.value == pytest.approx(2.0, rel=0.02)


def test_few_settings_have_workers_at_once() -> None:
    """At most as many as are measured in turns; those of a setting that lost are stopped."""
    training = Training()
    most = 0
    for _ in training.iterate():
        training.clock.advance(10 * MS)
        most = max(most, sum(made.is_open for made in training.feeding.made))
    assert 1 < most <= MOST_IN_TURNS
    training.epoch()
    assert not any(made.is_open for made in training.feeding.made)


@pytest.mark.parametrize("persists", [False, True])
def test_workers_live_as_long_as_those_of_the_program(persists: bool) -> None:
    """They end with its epochs, unless its own persist."""
    training = Training(100, persistent_workers=persists)
    training.epoch()
    assert not training.tuner.is_over
    assert any(made.is_open for made in training.feeding.made) is persists


def test_an_epoch_that_is_left_early_leaves_nothing_behind() -> None:
    """The next one begins with its first batch, and the search goes on."""
    training = Training()
    assert training.epoch(most=75) == training.whole[:150]
    assert not any(made.unserved for made in training.feeding.made)
    for _ in range(3):
        assert training.epoch() == training.whole
    assert training.tuner.report is not None
    assert training.tuner.report.best.settings == {"num_workers": 4}


def test_an_epoch_may_be_left_without_a_word() -> None:
    """The program keeps its iterator, and begins another one."""
    training = Training()
    kept = training.iterate()
    assert training.train(islice(kept, 75)) == training.whole[:150]
    assert training.epoch() == training.whole
    assert list(kept) == []
    assert training.epoch() == training.whole


def test_ctrl_c_passes_and_the_program_may_go_on() -> None:
    """With the present settings."""
    training = Training()

    def fails(_workers: int, batch: Any) -> None:
        if batch == [40, 41]:
            raise KeyboardInterrupt

    training.feeding.fails = fails
    with pytest.raises(KeyboardInterrupt):
        training.epoch()
    training.feeding.fails = lambda *_: None
    assert training.epoch() == training.whole
    assert not training.tuner.is_over


@pytest.mark.parametrize("max_cache_bytes", [1, 100])
def test_ideal_blocks_take_no_more_memory_than_they_may(max_cache_bytes: int) -> None:
    """Each batch of 16 bytes is still served once, in order."""
    training = Training(max_cache_bytes=max_cache_bytes)
    epochs = 0
    while training.tuner.report is None:
        assert training.epoch() == training.whole
        epochs += 1
        assert epochs < 10


def test_a_turn_may_end_with_the_epoch() -> None:
    """The first one has 13 batches in its real block, and 11 in its ideal one."""
    training = Training(24)
    for _ in range(3):
        assert training.epoch() == training.whole


def test_epochs_too_short_to_count_end_the_search() -> None:
    """Training goes on with the present settings, and the reason is known."""
    training = Training(4)
    for _ in range(8):
        assert training.epoch() == training.whole
    assert "use longer epochs" in str(training.tuner.error)
    assert training.tuner.changes == {}
    assert training.ends == 1


def test_a_setting_that_fails_is_a_result() -> None:
    """Its batches are served by others; the training does not notice."""
    training = Training()

    def fails(workers: int, batch: Any) -> None:
        if workers == 2 and batch[0] % 7 == 0:
            raise OSError("no shared memory")

    training.feeding.fails = fails
    for _ in range(2):
        assert training.epoch() == training.whole
    report = training.tuner.report
    assert report is not None
    states = {trial.settings["num_workers"]: trial.state for trial in report.trials}
    assert states[2] is TrialState.FAILED
    assert states[1] is TrialState.MEASURED


def test_a_setting_that_cannot_be_made_is_a_result() -> None:
    """Workers may not start."""
    training = Training()
    training.feeding.cannot_make = 2
    for _ in range(2):
        assert training.epoch() == training.whole
    report = training.tuner.report
    assert report is not None
    errors = {trial.settings["num_workers"]: trial.error for trial in report.trials}
    assert "no more processes" in str(errors[2])


def test_what_the_dataset_raises_reaches_the_training_which_may_go_on() -> None:
    """As with its own loader: the bad batch raises, and the next ones come."""
    training = Training()

    def fails(_workers: int, batch: Any) -> None:
        if batch == [40, 41]:
            raise ValueError("a bad sample")

    training.feeding.fails = fails
    seen: list[int] = []
    epoch = training.iterate()
    training.feeding.clock.advance(MS)
    with pytest.raises(ValueError, match="a bad sample"):
        seen.extend(n for batch in epoch for n in batch.tolist())
    seen += training.train(training.tuner.after_error())
    assert seen == training.whole[:40] + training.whole[42:]
    assert "a bad sample" in str(training.tuner.error)


@pytest.mark.parametrize("batches", [30, 1500])
def test_what_the_sampler_raises_reaches_the_training(batches: int) -> None:
    """Once what it chose before was served, in turns or with the best settings."""
    training = Training(1500)

    def sampler() -> Iterator[Any]:
        yield from training.feeding.epoch(batches)
        raise ValueError("a bad sampler")

    seen: list[int] = []
    epoch = training.tuner.epoch(training.feeding, sampler())
    with pytest.raises(ValueError, match="a bad sampler"):
        seen.extend(n for batch in epoch for n in batch.tolist())
    assert seen == training.whole[: 2 * batches]


def test_a_loader_that_the_program_makes_anew_is_used() -> None:
    """It may have another dataset."""
    training = Training(100)
    training.epoch()
    before = len(training.feeding.made)
    training.feeding = again = Feeding(training.clock, 100)
    assert training.epoch() == training.whole
    assert before
    assert any(made.opened for made in again.made)


def test_a_training_that_ends_first_has_what_was_found() -> None:
    """It says that the search did not end; without a measurement there is only the reason."""
    training = Training(400)
    training.epoch(most=300)
    training.tuner.end()
    assert training.tuner.report is not None
    assert training.tuner.report.stopped is Stop.TRAINING_ENDED
    short = Training()
    short.epoch(most=5)
    short.tuner.end()
    assert short.tuner.report is None
    assert "before its present settings" in str(short.tuner.error)
    assert list(short.tuner.after_error()) == []

"""A loader that is tuned within the epochs of a training: what is served, and what is found."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from loadeval.analysis.predict.tuning import MOST_IN_TURNS, WORKERS, Stop, TrialState
from loadeval.errors import UsageError
from loadeval.runtime.settings import EvaluatorSettings
from loadeval.runtime.whole_epochs import WholeEpochs
from loadeval.testing import FakeClock
from loadeval.tuning import forecasts, tuner
from loadeval.tuning.in_training import TrainingTuner
from loadeval.tuning.loaders import LoaderMaker
from loadeval.tuning.ranks import AHEAD, DECISIONS, RankTurns
from tests.fed import MS, Feeding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Training:
    """Trains for 10 ms on each batch, by a clock, while its loader is tuned; notes the samples."""

    def __init__(
        self,
        batches: int = 600,
        max_cache_bytes: int = 2**30,
        ranks: RankTurns | None = None,
        space: Mapping[str, list[Any]] | None = None,
        **options: Any,
    ) -> None:
        self.clock = FakeClock()
        self.batches = batches
        self.feeding = Feeding(self.clock, batches, **options)
        self.ends = 0
        self.seen: list[int] = []
        self.tuner = TrainingTuner(
            self.feeding.loader,
            replace(SETTINGS, max_cache_bytes=max_cache_bytes, clock=self.clock),
            space or SPACE,
            6,
            batches,
            self.note_end,
            ranks,
        )

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
SETTINGS = EvaluatorSettings(
    mode="alternate",
    samples=None,
    unit="samples",
    max_cache_bytes=2**30,
    overwrite=False,
    pairs=3,
    batches=24,
    seed=0,
    clock=FakeClock(),
    probes=(),
    stages=False,
)


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


def test_workers_of_a_setting_in_which_they_persist_do() -> None:
    """Those that the program has now end with its epochs."""
    training = Training(50, space={"num_workers": [1], "persistent_workers": [False, True]})
    while training.tuner.report is None:
        assert training.epoch() == training.whole
    tried = [(made.loader.persistent_workers, made.opened) for made in training.feeding.made]
    assert [opened for persists, opened in tried if persists] == [1]
    assert max(opened for persists, opened in tried if not persists) > 1


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


class InTraining(IterableDataset[int]):
    """Sixty samples, which workers cannot open."""

    def __iter__(self) -> Iterator[int]:
        if get_worker_info() is not None:
            raise OSError("too many open files")
        return iter(range(60))


def test_a_setting_that_cannot_begin_a_whole_epoch_is_a_result() -> None:
    """Another one serves it."""
    loader: Any = DataLoader(InTraining(), batch_size=2)
    feeding = WholeEpochs(loader)
    space = {"num_workers": [0, 1]}
    settings = replace(SETTINGS, clock=time.perf_counter_ns)
    training = TrainingTuner(loader, settings, space, 6, 30, lambda: None)
    while not training.is_over:
        assert len(list(training.epoch(feeding, feeding.indices(is_first=False)))) == 30
    assert training.report is not None
    errors = {trial.settings["num_workers"]: trial.error for trial in training.report.trials}
    assert errors[0] is None
    assert "too many open files" in str(errors[1])


def bad_at(number: int) -> Callable[[int, Any], None]:
    """Raises for the batch that begins with this sample."""

    def fails(_workers: int, batch: Any) -> None:
        if batch[0] == number:
            raise ValueError("a bad sample")

    return fails


def test_what_the_dataset_raises_reaches_the_training_which_may_go_on() -> None:
    """As with its own loader: the bad batch raises, and the next ones come."""
    training = Training()
    training.feeding.fails = bad_at(40)
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
    """Also of a measurement that it cut short, in which each of three settings had a round."""
    training = Training(400)
    training.epoch(most=250)
    training.tuner.end()
    assert training.tuner.report is not None
    assert training.tuner.report.stopped is Stop.TRAINING_ENDED
    assert training.settings == [1, 0, 2]
    states = {trial.state for trial in training.tuner.report.trials}
    assert states == {TrialState.MEASURED}
    assert training.tuner.changes == {"num_workers": 2}


def test_a_training_that_ends_before_a_measurement_has_the_reason() -> None:
    short = Training()
    short.epoch(most=5)
    short.tuner.end()
    assert short.tuner.report is None
    assert "before its present settings" in str(short.tuner.error)
    assert list(short.tuner.after_error()) == []


class Rank(Training):
    """One of two ranks; notes the workers that each of its batches was loaded with.

    A step of its optimizer comes after `each_step` batches.
    """

    def __init__(self, folder: Path, rank: int, batches: int = 600, each_step: int = 1) -> None:
        self.workers: list[int] = []
        turns = RankTurns(folder, rank, 2, lambda: len(self.workers) // each_step)
        super().__init__(batches, ranks=turns)
        self.feeding.fails = lambda workers, _: self.workers.append(workers)


def trained_together(first: Rank, second: Rank, epochs: int, ahead: int = 0) -> None:
    """Train epochs of both, batch by batch; the second is so many batches behind the first."""
    for _ in range(epochs):
        batches, others = first.iterate(), second.iterate()
        seen, seen_by_other = first.train(islice(batches, ahead)), []
        for _ in range(first.batches):
            seen += first.train(islice(batches, 1))
            seen_by_other += second.train(islice(others, 1))
        assert list(batches) == list(others) == []
        assert seen == seen_by_other == first.whole


@pytest.mark.parametrize("leader_is_first", [True, False])
@pytest.mark.parametrize("batches", [600, 70])
def test_ranks_change_settings_at_the_same_batch(
    tmp_path: Path, batches: int, leader_is_first: bool
) -> None:
    """Whichever asks first, in epochs longer and shorter than the search; rank 0 reports."""
    leader, follower = Rank(tmp_path, 0, batches), Rank(tmp_path, 1, batches)
    order = (leader, follower) if leader_is_first else (follower, leader)
    trained_together(*order, 1200 // batches)
    assert leader.workers == follower.workers
    assert set(leader.workers) == {0, 1, 2, 4}
    assert leader.tuner.changes == follower.tuner.changes == {"num_workers": 4}
    assert leader.ends == follower.ends == 1
    assert leader.tuner.report is not None
    assert follower.tuner.report is None


@pytest.mark.parametrize("each_step", [1, 16])
def test_a_rank_may_be_as_far_ahead_as_a_step_allows(tmp_path: Path, each_step: int) -> None:
    """It sees what rank 0 decides in time, and has the present settings until then."""
    leader, follower = (Rank(tmp_path, rank, each_step=each_step) for rank in range(2))
    trained_together(follower, leader, 3, ahead=each_step + 1)
    assert leader.workers == follower.workers
    assert follower.tuner.changes == {"num_workers": 4}


def test_a_rank_that_sees_a_decision_too_late_ends_the_tuning(tmp_path: Path) -> None:
    """Training goes on with the present settings, and rank 0 has the reason."""
    leader, follower = Rank(tmp_path, 0), Rank(tmp_path, 1)
    trained_together(follower, leader, 3, ahead=2 * AHEAD)
    assert "only 1 take turns" in str(leader.tuner.error)
    assert "sees it only after" in str(follower.tuner.error)
    assert leader.tuner.changes == follower.tuner.changes == {}
    assert set(follower.workers) == {1}


def test_rank_0_ends_the_tuning_of_all(tmp_path: Path) -> None:
    """Where something fails on it; the others have the present settings then."""
    leader, follower = Rank(tmp_path, 0), Rank(tmp_path, 1)
    epoch = follower.iterate()
    leader.feeding.fails = bad_at(40)
    with pytest.raises(ValueError, match="a bad sample"):
        leader.epoch()
    assert follower.train(epoch) == follower.whole
    assert "sees it only after" in str(follower.tuner.error)
    assert set(follower.workers) == {1}


@pytest.fixture(name="between")
def _between(tmp_path: Path) -> tuple[Rank, Iterator[Any], list[int]]:
    """A rank that waits for what rank 0 decides, its epoch, and the samples so far."""
    follower = Rank(tmp_path, 1)
    epoch = follower.iterate()
    return follower, epoch, follower.train(islice(epoch, 200))


def test_what_the_dataset_raises_before_a_decision_reaches_the_training(between: Any) -> None:
    """The bad batch raises, and the next ones come."""
    follower, epoch, seen = between
    follower.feeding.fails = bad_at(450)
    with pytest.raises(ValueError, match="a bad sample"):
        seen.extend(n for batch in epoch for n in batch.tolist())
    seen += follower.train(follower.tuner.after_error())
    assert seen == follower.whole[:450] + follower.whole[452:]


def test_an_epoch_may_be_left_before_a_decision(between: Any) -> None:
    """The next one begins with its first batch, and no worker is left."""
    follower, epoch, _ = between
    epoch.close()
    assert not any(made.unserved or made.is_open for made in follower.feeding.made)
    assert follower.epoch() == follower.whole
    follower.tuner.end()
    assert "before its present settings" in str(follower.tuner.error)


def test_a_training_that_ends_before_the_best_settings_begin_has_them(tmp_path: Path) -> None:
    """The report says why the search ended, not that the training did."""
    leader, follower = Rank(tmp_path, 0), Rank(tmp_path, 1)
    decisions = tmp_path / DECISIONS
    for _ in zip(leader.iterate(), follower.iterate(), strict=True):
        if decisions.exists() and json.loads(decisions.read_text())[-1][2] is not None:
            break
    leader.tuner.end()
    assert leader.tuner.report is not None
    assert leader.tuner.report.stopped is not Stop.TRAINING_ENDED


def test_ranks_share_the_cpus() -> None:
    """Of two CPUs each has one."""
    maker = LoaderMaker(Feeding(FakeClock()).loader, {})
    most = [
        max(tuner.Tuner(maker, {}, 6, None, ranks)._climbed_space()[WORKERS]) for ranks in (1, 2)
    ]
    assert most == [2, 1]


def test_what_was_decided_before_a_restart_is_forgotten(tmp_path: Path) -> None:
    """Rank 0 removes it when it begins."""
    (tmp_path / DECISIONS).write_text("[[0, null, {}]]")
    leader = RankTurns(tmp_path, 0, 1, lambda: 0)
    assert leader.decided(0) is None


def test_a_rank_leaves_where_the_folder_is_gone(tmp_path: Path) -> None:
    """Nothing is raised."""
    folder = tmp_path / "run"
    folder.mkdir()
    leader = RankTurns(folder, 0, 1, lambda: 0)
    shutil.rmtree(folder)
    leader.leave()

"""tune: what is measured, what is made, and what becomes of failures."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from loadeval import Tuning, UsageError, tune
from loadeval.analysis.estimate.arms import run_times
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.costs import costs_of
from loadeval.analysis.predict.prediction import Limit, Prediction, Range, WorkerCurve
from loadeval.analysis.predict.simulation import Setting, iteration_ns
from loadeval.analysis.predict.tuning import LeftOut, Stop, Trial, TrialState
from loadeval.runlog.stages import WorkerStart
from loadeval.runtime.adapter import IterableAdapter
from loadeval.testing import FakeClock, ScriptedLoader
from loadeval.tuning import forecasts, loaders, progress, trials, tuner
from loadeval.tuning.forecasts import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loadeval import Run

MS = 1_000_000
IMAGES = np.zeros((4, 3), np.uint8)


class Model:
    """A stand-in for predictions: a run's stages replayed, with a range of 10%."""

    cpu_share = 1.0

    def __init__(self, run: Run) -> None:
        compared = run_times(run).comparison
        step_ns = 0.0 if compared is None else compared.ideal_ns or 0.0
        costs = costs_of(run, step_ns)
        if costs is None:
            raise UsageError("no stages")
        self._costs, self.num_workers = costs, run.header.loader.workers or 0
        self._size = 1.0 if compared is None else compared.samples_per_batch or 1.0

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Model:
        return cls(runs[0])

    def predict(self, num_workers: int | None = None, **_: object) -> Prediction:
        workers = self.num_workers if num_workers is None else num_workers
        return predicted(iteration_ns(self._costs, Setting(workers)), workers, self._size)

    def starts_ns(self, *_: float) -> float:
        return 0.0

    def edge_ns(self, _: int) -> float:
        return 0.0

    def curve(self) -> WorkerCurve:
        return curve_of(self)


def curve_of(model: Any, most: int = 4) -> WorkerCurve:
    """A curve from 1 worker to `most`; what the model itself has measured."""
    predictions = tuple(model.predict(num_workers=count) for count in range(1, most + 1))
    return WorkerCurve(((1, Estimate(80.0)),), predictions, "samples", 2.0, 0.0)


def predicted(ns: float, workers: int, size: float = 4.0, memory_bytes: float = 1e6) -> Prediction:
    rate, ones = size * 1e9 / ns, Range(1.0, 1.0, 1.0)
    each, throughput = Range(ns, ns * 0.9, ns * 1.1), Range(rate, rate * 0.9, rate * 1.1)
    return Prediction(
        *(workers, 2, True, 4.0, None, {}, each, throughput, "samples", ones, Limit.WORKERS),
        *(workers * memory_bytes, workers * 1e6, ()),
    )


class Scripted:
    """Loaders whose batches take 40 ms by a clock, divided by their workers; a step takes 10 ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.made: list[dict[str, Any]] = []
        self.failing: Mapping[str, Any] = {}
        self.batches: list[Any] = [IMAGES] * 60
        self._monkeypatch = monkeypatch
        self.least_ns = 10 * MS
        self.start_ns = 0
        self.cpu_share = 1.0

    def make(self, num_workers: int = 1, **more: Any) -> ScriptedLoader:
        self.made.append({"num_workers": num_workers, **more})
        each_ns = 40 * MS // max(num_workers, 1)
        loader = ScriptedLoader(list(self.batches), [each_ns] * len(self.batches), self.clock)
        loader.num_workers = num_workers  # type: ignore[attr-defined]
        if {"num_workers": num_workers, **more}.items() >= self.failing.items() and self.failing:
            loader.batches = [OSError("gone")] * len(self.batches)
        return loader

    def step(self, _batch: object) -> None:
        self.clock.advance(10 * MS)

    def predict(self, memory_bytes: float = 1e6) -> None:
        """Let predictions be true."""
        scripted = self

        class Exact:
            num_workers = 1
            cpu_share = scripted.cpu_share

            @classmethod
            def of(cls, _runs: object) -> Exact:
                return cls()

            def predict(self, num_workers: int = 1, **_: object) -> Prediction:
                ns = 40 * MS / max(num_workers, 1) + scripted.least_ns
                return predicted(ns, num_workers, memory_bytes=memory_bytes)

            def curve(self) -> WorkerCurve:
                return curve_of(self)

            def starts_ns(self, num_workers: int, epochs: float) -> float:
                return scripted.start_ns * num_workers / epochs

            def edge_ns(self, _: int) -> float:
                return 0.0

        for module in (tuner, forecasts):
            self._monkeypatch.setattr(module, "LoaderModel", Exact)

    def tune(self, make: Any = None, **options: Any) -> Tuning:
        fixed: dict[str, Any] = {"batches": 24, "rounds": 3, "probes": (), "clock": self.clock}
        fixed |= {"settings": {"num_workers": 1}, "step": self.step}
        return tune(self.make if make is None else make, **{**fixed, **options})


@pytest.fixture(name="scripted")
def _scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(tuner, "cpus", lambda: 2)

    class Without:
        @classmethod
        def of(cls, _runs: object) -> Without:
            raise UsageError("nothing is known of the inside")

    for module in (tuner, forecasts):
        monkeypatch.setattr(module, "LoaderModel", Without)
    return Scripted(monkeypatch)


def tried(tuning: Tuning) -> list[Any]:
    return [trial.settings.get("num_workers") for trial in tuning.trials]


def test_predicted_settings_are_measured(scripted: Scripted) -> None:
    """The prediction stands beside what was measured, and the gain is what was measured."""
    scripted.predict()
    tuning = scripted.tune()
    assert tuning.predicted
    assert tuning.settings == {"num_workers": 4}
    assert tuning.gain is not None
    assert tuning.gain.value == pytest.approx(50 / 20)
    assert tuning.present is tuning.trials[0]
    assert tuning.present.prediction is None
    prediction, measured = tuning.best.prediction, tuning.best.throughput
    assert prediction is not None
    assert measured is not None
    assert prediction.throughput.value == pytest.approx(measured.value) == pytest.approx(200)
    assert tuning.best.epoch_throughput is not None
    assert tuning.epoch_batches == 60


def test_the_best_can_be_made(scripted: Scripted) -> None:
    scripted.predict()
    tuning = scripted.tune()
    assert tuning.make().num_workers == 4
    assert scripted.made[-1] == tuning.settings


def test_without_predictions_workers_are_doubled(scripted: Scripted) -> None:
    """As far as there are CPUs, and none are tried; it is said that nothing was predicted."""
    tuning = scripted.tune()
    assert not tuning.predicted
    assert tried(tuning) == [1, 0, 2]
    assert tuning.settings == {"num_workers": 2}
    assert "Nothing was predicted" in str(tuning)


def test_other_settings_are_doubled_too(scripted: Scripted) -> None:
    """They are settings of other loaders, by their names."""

    def make(num_threads: int, buffer_size: int) -> ScriptedLoader:
        assert buffer_size
        return scripted.make(num_threads)

    tuning = scripted.tune(make, settings={"num_threads": 2, "buffer_size": 3}, max_trials=5)
    assert [trial.settings for trial in tuning.trials] == [
        {"num_threads": 2, "buffer_size": 3},
        {"num_threads": 1, "buffer_size": 3},
        {"num_threads": 2, "buffer_size": 1},
        {"num_threads": 2, "buffer_size": 6},
        {"num_threads": 1, "buffer_size": 1},
    ]
    assert tuning.settings == {"num_threads": 2, "buffer_size": 1}


def test_space_says_what_to_choose_from(scripted: Scripted) -> None:
    tuning = scripted.tune(space={"num_workers": [3, 8]})
    assert tried(tuning) == [1, 3, 8]
    assert tuning.settings == {"num_workers": 8}


def test_a_setting_that_make_does_not_take_is_not_tuned(scripted: Scripted) -> None:
    scripted.predict()
    tuning = scripted.tune(lambda num_workers: scripted.make(num_workers))  # noqa: PLW0108 - the names matter
    assert all(trial.settings.keys() == {"num_workers"} for trial in tuning.trials)
    with pytest.raises(UsageError, match="space has 'pin_memory', which make does not take"):
        scripted.tune(lambda: scripted.make(), settings={}, space={"pin_memory": [True]})  # noqa: PLW0108 - the lambda takes no names


def test_nothing_to_tune_is_an_error(scripted: Scripted) -> None:
    with pytest.raises(UsageError, match="nothing to tune"):
        scripted.tune(lambda: iter(scripted.make()), settings={})


def test_what_can_be_iterated_once_is_made_again(scripted: Scripted) -> None:
    tuning = scripted.tune(lambda num_workers: iter(scripted.make(num_workers)))
    assert tuning.settings == {"num_workers": 2}


def test_without_a_step_it_is_the_loader_alone(scripted: Scripted) -> None:
    scripted.predict()
    tuning = scripted.tune(step=None)
    assert not tuning.step
    rate = tuning.present.throughput
    assert rate is not None
    assert rate.value == pytest.approx(100)
    assert "without a training step" in str(tuning)


def test_what_is_not_predicted_is_measured_last(scripted: Scripted) -> None:
    scripted.predict()
    tuning = scripted.tune(space={"pin_memory": [False, True]})
    assert tuning.trials[-1].settings == {"num_workers": 4, "pin_memory": True}
    assert tuning.trials[-1].prediction is None
    assert tuning.settings == {"num_workers": 4}


def test_predicted_settings_that_fail_are_a_result(scripted: Scripted) -> None:
    """Later predictions come of the others."""
    scripted.predict()
    scripted.failing = {"num_workers": 4}
    tuning = scripted.tune()
    assert tuning.settings == {"num_workers": 3}
    assert [trial.settings for trial in tuning.trials if trial.error] == [{"num_workers": 4}]


def test_settings_that_fail_are_a_result(scripted: Scripted) -> None:
    """A loader raises with them; the others go on."""
    scripted.failing = {"num_workers": 2}
    tuning = scripted.tune()
    assert [trial.state for trial in tuning.trials] == [
        *[TrialState.MEASURED] * 2,
        TrialState.FAILED,
    ]
    assert tuning.trials[2].error == "OSError: gone"
    assert tuning.settings == {"num_workers": 0}  # as fast as with one
    assert "num_workers=2 failed: OSError: gone" in str(tuning)


@pytest.mark.parametrize("wrong", [OSError("cannot make it"), UsageError("cannot make it")])
def test_a_loader_that_cannot_be_made_is_a_result(scripted: Scripted, wrong: Exception) -> None:

    def make(num_workers: int) -> ScriptedLoader:
        if num_workers == 2:
            raise wrong
        return scripted.make(num_workers)

    assert scripted.tune(make).trials[2].error == f"{type(wrong).__name__}: cannot make it"


def test_a_loader_without_a_batch_is_a_result(scripted: Scripted) -> None:

    def make(num_workers: int) -> Any:
        return scripted.make(num_workers) if num_workers == 1 else []

    error = scripted.tune(make).trials[1].error
    assert error is not None
    assert "the loader gave no batch" in error


def test_a_step_that_fails_with_other_settings_is_a_result(scripted: Scripted) -> None:
    """A larger batch may not fit; with the present settings it is the user's error."""

    def step(_batch: object) -> None:
        scripted.step(_batch)
        if scripted.made[-1]["num_workers"] == 2:
            raise MemoryError

    tuning = scripted.tune(step=step)
    assert tuning.trials[-1].error == "MemoryError"
    scripted.made.clear()
    with pytest.raises(MemoryError):
        scripted.tune(step=step, settings={"num_workers": 2})


def test_present_settings_that_fail_raise_what_the_loader_raises(scripted: Scripted) -> None:
    scripted.failing = {"num_workers": 1}
    with pytest.raises(OSError, match="gone"):
        scripted.tune()


def interrupting(scripted: Scripted, after: int) -> Callable[[object], None]:
    """A step in which Ctrl-C is pressed after so many batches."""
    count = 0

    def step(batch: object) -> None:
        nonlocal count
        count += 1
        scripted.step(batch)
        if count == after:
            raise KeyboardInterrupt

    return step


def test_ctrl_c_gives_what_is_known(scripted: Scripted) -> None:
    """What the interrupted rounds measured too."""
    scripted.predict()
    served = 0

    def step(batch: object) -> None:
        nonlocal served
        served += 1
        scripted.step(batch)

    scripted.tune(step=step)
    tuning = scripted.tune(step=interrupting(scripted, served - 10))
    assert tuning.stopped is Stop.INTERRUPTED
    assert all(trial.state is TrialState.MEASURED for trial in tuning.trials)
    assert "Ended early by Ctrl-C" in str(tuning)


def test_ctrl_c_while_a_loader_is_made_gives_what_is_known(scripted: Scripted) -> None:

    def make(num_workers: int) -> ScriptedLoader:
        if num_workers == 2:
            raise KeyboardInterrupt
        return scripted.make(num_workers)

    tuning = scripted.tune(make)
    assert tuning.stopped is Stop.INTERRUPTED
    assert [trial.state for trial in tuning.trials] == [
        TrialState.MEASURED,
        TrialState.NOT_MEASURED,
        TrialState.NOT_MEASURED,
    ]
    assert tuning.best is tuning.present


def test_ctrl_c_before_anything_is_known_is_ctrl_c(scripted: Scripted) -> None:
    with pytest.raises(KeyboardInterrupt):
        scripted.tune(step=interrupting(scripted, 2))


def test_an_error_that_comes_of_ctrl_c_is_ctrl_c(scripted: Scripted) -> None:
    """Ctrl-C ends workers too, which the loader then tells as its own error."""
    wrong = RuntimeError("worker exited unexpectedly")
    wrong.__context__ = KeyboardInterrupt()

    def make(num_workers: int) -> ScriptedLoader:
        loader = scripted.make(num_workers)
        if num_workers == 2:
            loader.batches = [IMAGES] * 20 + [wrong] * 40
        return loader

    tuning = scripted.tune(make)
    assert tuning.stopped is Stop.INTERRUPTED
    assert tuning.trials[1].error is None


def test_nothing_that_could_be_measured_is_an_error(scripted: Scripted) -> None:
    with pytest.raises(UsageError, match="no batch could be measured"):
        scripted.tune(
            lambda num_workers: ScriptedLoader([IMAGES] * 60, [0] * 60, scripted.clock),  # noqa: ARG005 - its time does not pass
            step=None,
            settings={"num_workers": 1},
        )


def test_what_there_is_no_room_for_is_left_out(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.predict(memory_bytes=1000)
    monkeypatch.setattr(Room, "free", classmethod(lambda cls: cls(2500, None)))
    tuning = scripted.tune()
    assert tuning.settings == {"num_workers": 2}
    assert {candidate.settings["num_workers"] for candidate in tuning.left_out} == {3, 4}
    assert {candidate.reason.code for candidate in tuning.left_out} == {LeftOut.MEMORY}
    text = "num_workers=4: predicted to take 4.00 kB of memory, 2.50 kB may be used"
    assert text in str(tuning)


def test_room_is_of_memory_and_of_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room.free()
    assert room.memory_bytes is not None
    assert room.memory_bytes > 0
    wanted = predicted(1e6, 4)
    reason = Room(None, 1e6).why_left_out(wanted)
    assert reason is not None
    assert reason.code is LeftOut.SHARED_MEMORY
    assert Room(None, None).why_left_out(wanted) is None
    monkeypatch.setattr(forecasts, "SHM", "/no/such/folder")
    assert Room.free().shared_memory_bytes is None


def test_cpus_are_those_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:

    class Group:
        quota_cores = 1.5

    monkeypatch.setattr(tuner, "cpus_usable", lambda: 8)
    monkeypatch.setattr(tuner, "tightest_cpu", lambda: None)
    assert tuner.cpus() == 8
    monkeypatch.setattr(tuner, "tightest_cpu", Group)
    assert tuner.cpus() == 1


def test_samples_must_be_known_to_tune_the_batch_size(scripted: Scripted) -> None:
    """Else a larger batch would seem slower."""
    scripted.batches = ["text"] * 60
    with pytest.raises(UsageError, match="space has 'batch_size', and the samples"):
        scripted.tune(space={"batch_size": [4, 8]})
    assert scripted.tune().unit == "batches"


def test_starts_of_epochs_count(scripted: Scripted) -> None:
    """Over as many batches as an epoch has; of a loader without a length if it is told."""
    assert scripted.tune(epoch_batches=1000).epoch_batches == 1000
    scripted.batches = [IMAGES] * 20
    tuning = scripted.tune(lambda num_workers: iter(scripted.make(num_workers)))
    assert tuning.epoch_batches == 20  # epochs were served to their end
    assert tuning.best.epoch_throughput is not None


def test_epochs_of_unknown_length_have_no_throughput(scripted: Scripted) -> None:
    scripted.batches = [IMAGES] * 1000

    def endless(num_workers: int) -> Iterator[Any]:
        yield from scripted.make(num_workers)

    tuning = scripted.tune(endless)
    assert tuning.epoch_batches is None
    assert tuning.best.epoch_throughput is None
    assert tuning.settings == {"num_workers": 2}
    assert "with epoch starts" not in str(tuning)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 2}, "rounds is 2 and max_trials 6; expected at least 3"),
        ({"max_trials": 0}, "max_trials 0"),
        ({"step": 3}, "step is 3; expected a function"),
        ({"space": {"num_workers": []}}, r"space has num_workers=\[\]; expected the values"),
        ({"space": {"num_workers": "24"}}, "space has num_workers='24'; expected the values"),
        ({"batches": 0}, "batches is 0"),
        ({"make": [1, 2]}, "cannot make this list again with other settings; pass a function"),
    ],
)
def test_wrong_arguments_are_named(
    scripted: Scripted, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        scripted.tune(**options)


def test_a_loader_is_made_again_by_its_adapter(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:

    class Adapter(IterableAdapter):
        def tunable(self, loader: Any) -> Mapping[str, Any]:
            return {"num_workers": loader.num_workers}

        def reconfigured(self, loader: Any, settings: Mapping[str, Any]) -> Any:
            return scripted.make(**{"num_workers": loader.num_workers, **settings})

    monkeypatch.setattr(loaders, "adapter_for", lambda _: Adapter())
    given = scripted.make(1)
    tuning = scripted.tune(given, settings=None)
    assert tuning.settings == {"num_workers": 2}
    assert tuning.present.settings == {}
    assert given.asked == 0


def test_a_function_whose_parameters_are_not_known_takes_any() -> None:
    assert loaders._parameters(max) is None
    assert loaders._parameters(lambda a, *, b: (a, b)) == {"a", "b"}
    assert loaders._parameters(lambda **_: None) is None


def test_a_bar_is_shown_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FakeClock(10**12)
    with progress.bar(True, clock) as report:
        report("not shown", 1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar(True, clock) as report:
        report("2 settings in turns", 1, 2)
        report("too early to draw again", 2, 2)
    assert "2 settings in turns" in capsys.readouterr().err


def test_a_result_is_ready_for_json(scripted: Scripted) -> None:
    scripted.predict()
    tuning = scripted.tune(make=scripted.make, settings={"num_workers": 1})
    decoded = json.loads(json.dumps(tuning.as_dict()))
    assert decoded["settings"] == {"num_workers": 4}
    assert decoded["trials"][decoded["best"]]["settings"] == decoded["settings"]
    assert decoded["stopped"] == tuning.stopped.value
    assert decoded["trials"][1]["predicted"]["value"] == pytest.approx(200)


# From here on there are real workers, or what torch says of them.


class Sleepy(Dataset[torch.Tensor]):
    """Samples that take 5 ms, as from a network."""

    sample_s: ClassVar[float] = 0.005
    broken: ClassVar[tuple[int, ...]] = ()

    def __len__(self) -> int:
        return 96

    def __getitem__(self, _index: int) -> torch.Tensor:
        worker = get_worker_info()
        if worker is not None and worker.num_workers in self.broken:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.sample_s)
        return torch.zeros(4)


class Quick(Sleepy):
    """Samples that take next to nothing."""

    sample_s = 0


class Broken(Sleepy):
    broken = (2,)


def loader(dataset: Dataset[torch.Tensor] | None = None, **settings: Any) -> Any:
    return DataLoader(Sleepy() if dataset is None else dataset, **settings)


@pytest.fixture(name="model")
def _model(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tuner, forecasts):
        monkeypatch.setattr(module, "LoaderModel", Model)


REAL: dict[str, Any] = {"batches": 24, "rounds": 3, "probes": (), "progress": False}


@pytest.mark.check
@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_slow_loader_gets_more_workers(workers: int) -> None:
    """Really: samples that sleep load beside one another."""
    tuning = tune(
        loader,
        lambda _: time.sleep(0.001),
        settings={"num_workers": workers, "batch_size": 4},
        space={"num_workers": [0, 1, 3], "prefetch_factor": [2], "in_order": [True]},
        epoch_batches=10_000,
        **REAL,
    )
    assert tuning.settings["num_workers"] == 3
    assert tuning.settings["batch_size"] == 4
    assert tuning.gain is not None
    assert tuning.gain.value > 1


@pytest.mark.check
@pytest.mark.usefixtures("model")
def test_present_settings_stay_where_the_step_takes_longest() -> None:
    tuning = tune(
        lambda **settings: loader(Quick(), **settings),
        lambda _: time.sleep(0.02),
        settings={"num_workers": 2, "batch_size": 4},
        space={"num_workers": [2, 3], "prefetch_factor": [2], "in_order": [True]},
        epoch_batches=100_000,
        **REAL,
    )
    assert tuning.best is tuning.present
    assert tuning.gain is None
    assert str(tuning).startswith("Training is fastest, or as fast, with the present settings")


@pytest.mark.usefixtures("model")
@pytest.mark.check
def test_killed_workers_are_a_result() -> None:
    tuning = tune(
        lambda **settings: loader(Broken(), **settings),
        lambda _: time.sleep(0.001),
        settings={"num_workers": 1, "batch_size": 4},
        space={"num_workers": [1, 2], "prefetch_factor": [2], "in_order": [True]},
        epoch_batches=10_000,
        **REAL,
    )
    assert tuning.trials[1].state is TrialState.FAILED
    assert tuning.trials[1].error is not None
    assert "RuntimeError: DataLoader worker" in tuning.trials[1].error
    assert tuning.best is tuning.present


def test_a_function_that_ignores_its_settings_is_told() -> None:
    with pytest.raises(UsageError, match=r"make\(num_workers=2\) returned a loader with num_wor"):
        tune(lambda **_: loader(), settings={"num_workers": 2})


def test_a_dataloader_has_its_defaults_where_nothing_else_is_said() -> None:
    """It is told nothing of workers without any, or what means nothing where it was named."""
    maker = loaders.LoaderMaker(loader, {"num_workers": 2})
    assert maker.value("prefetch_factor") == 2
    assert maker.settings({"num_workers": 4, "prefetch_factor": 2}) == {"num_workers": 4}
    assert maker.settings({"num_workers": 0}) == {"num_workers": 0}
    assert maker.takes("in_order")
    assert not maker.takes("num_threads")
    named = {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": True}
    maker = loaders.LoaderMaker(loader, named)
    assert maker.make(maker.settings({"num_workers": 0})).num_workers == 0
    assert maker.settings({"num_workers": 0})["prefetch_factor"] is None


def test_what_is_tuned_of_a_dataloader(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning where there is CUDA, keeping workers where starting them takes long."""
    scripted.predict()
    made = loaders.LoaderMaker(loader, {"num_workers": 1})
    fresh_tuner = tuner.Tuner(made, {}, 6)
    whole: Any = trials.EpochThroughput(None, True, None, 0.999, 0.0, 0.0, 9.0)  # type: ignore[arg-type]
    assert set(fresh_tuner._predicted_space(whole, 1.0)) == {
        "num_workers",
        "prefetch_factor",
        "in_order",
    }
    monkeypatch.setattr(tuner, "has_cuda", lambda: True)
    whole = whole._replace(factor=0.9)
    assert {"pin_memory", "persistent_workers"} <= set(fresh_tuner._predicted_space(whole, 1.0))
    assert fresh_tuner._predicted_space(whole, 1.0)["num_workers"] == [0, 1, 2, 3, 4]
    assert fresh_tuner._predicted_space(whole, 0.0)["num_workers"][-1] == 16


def test_a_training_that_may_end_has_short_queues_first(scripted: Scripted) -> None:
    del scripted  # two CPUs
    made = loaders.LoaderMaker(loader, {"num_workers": 1})
    space = {"num_workers": [1, 16], "prefetch_factor": [2, 4]}
    assert tuner.Tuner(made, {}, 6)._depths(space) == (32, math.inf)
    assert tuner.Tuner(made, {}, 6, may_end=True)._depths(space) == (32, 8)
    asked = {"num_workers": [1, 16]}
    assert tuner.Tuner(made, asked, 6, may_end=True)._depths(space) == (32, math.inf)


def test_there_is_cuda_where_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert tuner.has_cuda()
    monkeypatch.delitem(sys.modules, "torch")
    assert not tuner.has_cuda()


def test_workers_that_persist_start_once(scripted: Scripted) -> None:
    """Epochs in which none was started tell what later epochs of a training take."""
    del scripted
    runs: list[Run] = []
    clock = FakeClock()
    from loadeval import LoaderEvaluator

    waits = [100 * MS] + [10 * MS] * 59
    source = ScriptedLoader([IMAGES] * 60, waits, clock)
    with LoaderEvaluator(source, "alternate", clock=clock, probes=()) as evaluator:
        for number in range(3):
            if number:
                source.waits_ns = [20 * MS, *waits[1:]]
            for _ in evaluator:
                clock.advance(10 * MS)
    run = evaluator.recorded()
    info = replace(run.header.loader, workers=2, persistent_workers=True)
    run = replace(run, header=replace(run.header, loader=info))
    runs += [run, replace(run, worker_starts=(WorkerStart(0, 0, 0, 1, 2, 3),))]
    every, later = (trials.starts_of(run, None) for run in runs)
    assert every is not None
    assert later is not None
    assert (every.epochs, later.epochs) == (3, 2)
    assert later.first_ns.mean() < every.first_ns.mean()


def test_a_throughput_without_an_interval_has_none_over_an_epoch() -> None:
    assert trials._scaled(Estimate(10.0), 0.5, 0.1) == Estimate(5.0)
    scaled = trials._scaled(Estimate(10.0, 7.0, 14.0), 0.5, 0.3)
    assert (scaled.low, scaled.high) == pytest.approx((5 * (1 - 0.18**0.5), 5 * 1.5))


@pytest.mark.usefixtures("scripted")
def test_runs_that_tell_nothing_leave_predictions_as_they_are() -> None:
    class Flat:
        num_workers = 1

        def predict(self, num_workers: int = 0, **_: object) -> Prediction:
            return predicted(10 * MS, num_workers, size=1.0)

    model: Any = Flat()
    forecaster = forecasts.Forecaster(model, Room(None, None), None)
    forecaster.recalibrate([])
    assert forecaster({"num_workers": 2}).throughput.value == 100


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ({"prefetch_factor": 4}, {}),
        ({"num_workers": 0, "prefetch_factor": 4}, {"num_workers": 0}),
        *[({"num_workers": 2, "prefetch_factor": 4},) * 2],
    ],
)
def test_without_workers_nothing_is_prefetched(
    point: dict[str, int], expected: dict[str, int]
) -> None:
    """Nor is prefetching predicted: the loader's workers count where none are chosen."""
    asked: list[object] = []

    class Asked:
        num_workers = 0

        def predict(self, **settings: int) -> Prediction:
            asked.append(settings)
            return predicted(10 * MS, 1)

    model: Any = Asked()
    forecasts.Forecaster(model, Room(None, None), None)(point)
    assert asked == [expected]


def test_starts_of_epochs_are_predicted_as_seen() -> None:
    """The most similar number of workers counts, of those that persist or of the others."""

    class Flat:
        num_workers = 1

        def predict(self, num_workers: int = 0, **_: object) -> Prediction:
            return predicted(10 * MS, num_workers, size=1.0)

        def starts_ns(self, num_workers: int, epochs: float) -> float:
            return 100 * MS * num_workers / epochs

        def edge_ns(self, _: int) -> float:
            return 5 * MS

    model: Any = Flat()
    forecaster = forecasts.Forecaster(model, Room(None, None), 10)
    point = {"num_workers": 2}
    assert forecasts.Forecaster(model, Room(None, None), None)(point).throughput.value == 100
    forecaster.saw_start(0, False, 25 * MS)
    assert forecaster({"num_workers": 0}).throughput.value == pytest.approx(80)
    # Workers that nobody has seen start take what that usually takes.
    assert forecaster(point).throughput.value == pytest.approx(1000 / 33)
    persistent = {**point, "persistent_workers": True}
    forecaster.saw_start(2, False, 100 * MS)
    assert forecaster(persistent).throughput.value == pytest.approx(1000 / 13)
    assert forecaster(point).throughput.value == pytest.approx(50)
    assert forecaster({"num_workers": 4}).throughput.value == pytest.approx(100 / 3)
    assert forecaster({"num_workers": 0}).throughput.value == pytest.approx(80)
    forecaster.saw_start(2, True, 0.0)
    assert forecaster(persistent).throughput.value == pytest.approx(100)


@pytest.mark.parametrize(("cpu_share", "most"), [(1.0, 4), (0.4, 8), (0.0, 16)])
def test_workers_that_wait_may_be_many(scripted: Scripted, cpu_share: float, most: int) -> None:
    """Two for each CPU that they use, as far as that is known, and at most eight for each."""
    scripted.cpu_share, scripted.least_ns = cpu_share, 1
    scripted.predict()
    tuning = scripted.tune(step=lambda _: scripted.clock.advance(1))
    assert tuning.settings == {"num_workers": most}


def test_more_workers_that_persist_are_tried(scripted: Scripted) -> None:
    """Where starting workers takes most of an epoch, others are slower than the present one."""
    scripted.predict()
    scripted.start_ns = 2000 * MS

    def make(num_workers: int = 1, *, persistent_workers: bool = False) -> ScriptedLoader:
        loader = scripted.make(num_workers)
        loader.persistent_workers = persistent_workers  # type: ignore[attr-defined]
        if not persistent_workers:
            loader.waits_ns[0] += scripted.start_ns * num_workers
        return loader

    tuning = scripted.tune(make, settings={"num_workers": 1, "persistent_workers": False})
    assert tuning.settings == {"num_workers": 4, "persistent_workers": True}


def test_the_curve_has_what_was_measured(scripted: Scripted) -> None:
    """It has the present's other settings, the present last; everything measured predicts it."""
    scripted.predict()
    tuning = scripted.tune(space={"pin_memory": [False, True]})
    curve = tuning.curve
    assert curve is not None
    rates = {trial.settings["num_workers"]: trial.throughput for trial in tuning.trials[:-1]}
    assert curve.measured[-1] == (1, tuning.present.throughput)
    assert dict(curve.measured) == rates
    assert [prediction.num_workers for prediction in curve.predicted] == [1, 2, 3, 4]


def test_the_curve_has_the_best_whatever_its_settings(scripted: Scripted) -> None:
    scripted.predict()
    scripted.least_ns = 0
    make = scripted.make

    def pinned(num_workers: int, pin_memory: bool = False) -> ScriptedLoader:
        return make(2 * num_workers if pin_memory else num_workers)

    tuning = scripted.tune(
        lambda num_workers, pin_memory=False: _named(pinned(num_workers, pin_memory), num_workers),
        space={"num_workers": [1], "pin_memory": [False, True]},
    )
    assert tuning.settings == {"num_workers": 1, "pin_memory": True}
    assert tuning.curve is not None
    assert [rate for _, rate in tuning.curve.measured] == [
        tuning.best.throughput,
        tuning.present.throughput,
    ]


def _named(made: ScriptedLoader, num_workers: int) -> ScriptedLoader:
    made.num_workers = num_workers  # type: ignore[attr-defined]
    return made


def test_without_predictions_there_is_no_curve(scripted: Scripted) -> None:
    assert scripted.tune().curve is None


def test_ctrl_c_while_predicting_ends_it_too(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    scripted.predict()
    monkeypatch.setattr(forecasts.Forecaster, "__call__", interrupted)
    monkeypatch.setattr(tuner.Tuner, "_trial", lambda *_: Trial({}, TrialState.MEASURED))
    assert scripted.tune().stopped is Stop.INTERRUPTED


def test_a_setting_that_the_loader_does_not_know() -> None:
    """One sentence names it."""

    def make(**settings: Any) -> DataLoader[torch.Tensor]:
        return DataLoader(torch.arange(8), **settings)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=r"does not take all of settings=.*num_worker"):
        tune(make, settings={"num_worker": 2}, progress=False)


def test_another_error_of_the_loader_is_its_own() -> None:
    def make(**_: Any) -> Any:
        raise TypeError("no loader today")

    with pytest.raises(TypeError, match="no loader today"):
        tune(make, progress=False)


def test_a_space_of_numbers_and_text() -> None:
    with pytest.raises(UsageError, match="expected numbers alone"):
        tune(lambda **_: [], space={"num_workers": [2, "x"]}, progress=False)

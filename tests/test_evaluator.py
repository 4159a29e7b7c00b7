"""LoaderEvaluator stands in for a loader, and for DALI's class of the same name."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadeval import IterableAdapter, LoaderEvaluator, LoadevalWarning, UsageError, read_run
from loadeval.core.loop import CHUNK
from loadeval.probes import Probe
from loadeval.testing import FakeClock, ScriptedLoader
from tests.scripted import register


class Loader:
    """A loader with the attributes that training loops use."""

    def __init__(self) -> None:
        self.dataset = ["a", "b", "c"]
        self.batch_size = 1
        self.sampler = SimpleNamespace(epoch=0)
        self.resets = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def reset(self) -> None:
        self.resets += 1


def test_length_and_truth_are_the_loaders() -> None:
    assert len(LoaderEvaluator(Loader())) == 3
    with pytest.raises(TypeError, match="has no len"):
        len(LoaderEvaluator(iter([1])))
    assert LoaderEvaluator(iter([1]))
    assert not LoaderEvaluator([])


def test_attributes_are_read_and_written_through() -> None:
    loader = Loader()
    evaluator = LoaderEvaluator(loader)
    evaluator.batch_size = 8
    evaluator.sampler.epoch = 5
    evaluator.new = "thing"
    evaluator.reset()
    assert (loader.batch_size, loader.sampler.epoch, loader.resets) == (8, 5, 1)
    assert evaluator.dataset is loader.dataset
    assert vars(loader)["new"] == "thing"
    with pytest.raises(AttributeError, match="'Loader' object has no attribute 'old'"):
        _ = evaluator.old


def test_what_it_was_made_with_cannot_be_assigned() -> None:
    evaluator: Any = LoaderEvaluator(Loader())
    with pytest.raises(AttributeError, match="mode cannot be set"):
        evaluator.mode = "replay"


def test_the_metrics_file_can_be_assigned(tmp_path: Path) -> None:
    evaluator = LoaderEvaluator(Loader(), metrics_file=tmp_path / "one.json")
    evaluator.metrics_file = tmp_path / "other.json"
    list(evaluator)
    evaluator.save_metrics()
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_another_loader_begins_another_run(tmp_path: Path) -> None:
    evaluator = LoaderEvaluator(Loader(), log_file=tmp_path / "run.jsonl")
    list(evaluator)
    other = ["d", "e"]
    evaluator.dataloader = other
    assert evaluator.dataloader is other
    assert list(evaluator) == ["d", "e"]
    evaluator.close()
    assert sorted(read_run(path).batches for path in tmp_path.iterdir()) == [2, 3]
    for wrong in (None, 7):
        with pytest.raises(UsageError, match="cannot read batches from"):
            evaluator.dataloader = wrong
    assert evaluator.dataloader is other
    evaluator.dataloader = other
    assert evaluator.recorded().batches == 2


def test_a_further_run_has_the_same_probes_and_tracker() -> None:
    read, tracked = [], []
    probe = Probe()
    vars(probe).update(name="probe", read=lambda: read.append(1) or {})
    evaluator = LoaderEvaluator(
        Loader(),
        probes=iter([probe]),
        probe_interval_s=1e-9,
        track=lambda batches, _: tracked.append(batches),
    )
    evaluator.batch_times = []
    list(evaluator)
    evaluator.close()
    assert tracked == [3]
    assert read


def test_batch_times_can_be_reset() -> None:
    """With the other results; what replay keeps stays."""
    loader = Loader()
    evaluator = LoaderEvaluator(loader, "replay", 2)
    list(evaluator)
    kept = evaluator.cached_batches
    evaluator.batch_times = []
    assert (evaluator.batch_times, evaluator.get_metrics()) == ([], {})
    assert (evaluator.start_time, evaluator.end_time) == (None, None)
    assert all(one is other for one, other in zip(evaluator.cached_batches, kept, strict=True))
    assert list(evaluator) == ["a", "b", "a"]
    assert len(evaluator.batch_times) == 3


@pytest.mark.parametrize(
    ("name", "value"), [("batch_times", [0.5, 0.25]), ("end_time", 7.0), ("cached_batches", ["x"])]
)
def test_a_result_that_is_assigned_is_read_until_the_next_epoch(name: str, value: Any) -> None:
    """As in DALI's class, whose epochs begin with results of their own."""
    evaluator = LoaderEvaluator(Loader())
    list(evaluator)
    measured = getattr(evaluator, name)
    setattr(evaluator, name, value)
    assert getattr(evaluator, name) == value != measured
    list(evaluator)
    assert getattr(evaluator, name) != value


def test_times_have_the_names_of_dalis_class() -> None:
    """The waits in seconds, and by the wall clock when reading began and came to its end."""
    evaluator: Any = LoaderEvaluator(Loader())
    assert (evaluator.batch_times, evaluator.start_time, evaluator.end_time) == ([], None, None)
    epoch = iter(evaluator)
    next(epoch)
    started_s, nothing = evaluator.start_time, evaluator.end_time
    assert (started_s, nothing) == (pytest.approx(time.time(), abs=10), None)
    list(epoch)
    assert evaluator.start_time == started_s
    total_s = evaluator.get_metrics()["total_time"]
    assert total_s - 1e-3 < evaluator.end_time - started_s < 10
    assert len(evaluator.batch_times) == 3


def test_a_replayed_epoch_has_the_length_that_it_serves() -> None:
    assert len(LoaderEvaluator(Loader(), "replay")) == 3
    evaluator = LoaderEvaluator(Loader(), "replay", epoch_batches=5)
    assert len(evaluator) == len(list(evaluator)) == 5
    with pytest.raises(TypeError, match="has no length"):
        len(LoaderEvaluator(Loader(), "replay", epoch_batches=math.inf))
    with pytest.raises(TypeError):
        len(LoaderEvaluator(lambda: iter("ab"), "replay", num_cached_batches=5))


@pytest.mark.parametrize(("after", "served"), [(1, "aababa"), (5, "abcaba")])
def test_replay_may_begin_after_real_batches(after: int, served: str) -> None:
    """The first ones are the loader's own and measured as such, however long an epoch is."""
    evaluator = LoaderEvaluator(Loader(), "replay", 2, replay_after=after)
    assert "".join(batch for _ in range(2) for batch in evaluator) == served
    steps = evaluator.recorded().steps
    real = min(after, 6)
    assert steps.arm.tolist() == [0] * real + [1] * (6 - real)
    epochs = [end.cause for end in evaluator.recorded().ends]
    assert epochs[-1] == "exhausted"


def test_batches_of_an_epoch_that_goes_on_are_recorded_ones() -> None:
    evaluator = LoaderEvaluator(range(9), batches=5)
    epoch = iter(evaluator)
    assert [next(epoch) for _ in range(3)] == [0, 1, 2]
    assert len(list(evaluator)) == 9
    assert evaluator.recorded().batches == 5


def test_batches_of_a_broken_off_epoch_are_recorded_ones() -> None:
    evaluator = LoaderEvaluator(Loader(), batches=3)
    for _ in range(3):
        epoch = iter(evaluator)
        assert next(epoch) + next(epoch) == "ab"
        del epoch
    run = evaluator.recorded()
    assert run.batches == 3
    assert [end.cause for end in run.ends] == ["broken off", "unmeasured"]


def pickled(evaluator: LoaderEvaluator) -> Any:
    return pickle.loads(pickle.dumps(evaluator))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("mode", ["log", "replay"])
def test_copies_and_pickles_measure_on_their_own(duplicate: Any, mode: str, tmp_path: Path) -> None:
    loader = Loader()
    original = LoaderEvaluator(loader, mode, 2, log_file=tmp_path / "run.jsonl")
    list(original)
    twin, second = duplicate(original), duplicate(original)
    assert list(twin) == list(original)
    assert (twin.recorded().batches, original.recorded().batches) == (3, 6)
    assert (twin.mode, twin.num_cached_batches) == (mode, 2)
    assert (twin.dataloader is loader) is (duplicate is copy.copy)
    for evaluator in (original, twin, second):
        evaluator.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run-1.jsonl", "run-2.jsonl", "run.jsonl"]


class ByIndex:
    """What Python iterates by index, from 0 to IndexError."""

    def __getitem__(self, index: int) -> str:
        return "abc"[index]


@pytest.mark.parametrize("loader", [lambda: iter("abc"), ByIndex()], ids=["callable", "by index"])
def test_whatever_can_be_iterated_is_a_loader(loader: Any) -> None:
    evaluator = LoaderEvaluator(loader)
    assert list(evaluator) == list(evaluator) == ["a", "b", "c"]


def test_an_epoch_without_a_batch_says_so() -> None:
    evaluator = LoaderEvaluator(iter("abc"))
    list(evaluator)
    with pytest.warns(LoadevalWarning, match="callable that returns"):
        assert list(evaluator) == []


def test_metrics_are_those_of_dalis_class() -> None:
    clock = FakeClock()
    loader = ScriptedLoader("ab", [2_000_000_000, 1_000_000_000], clock)
    evaluator = LoaderEvaluator(dataloader=loader, mode="log", metrics_file=None, clock=clock)
    assert evaluator.get_metrics() == {}
    for _ in evaluator:
        clock.advance(500_000_000)
    assert evaluator.get_metrics() == {
        "mode": "log",
        "total_batches": 2,
        "total_time": 4.0,
        "avg_batch_time": 1.5,
        "min_batch_time": 1.0,
        "max_batch_time": 2.0,
        "batch_times": [2.0, 1.0],
        "cached_batches": 0,
        "cache_ready": False,
    }


def test_arguments_may_be_given_by_place_as_to_dalis_class() -> None:
    evaluator = LoaderEvaluator([7], "replay", 1, "metrics.json")
    assert (evaluator.mode, evaluator.num_cached_batches) == ("replay", 1)
    assert (evaluator.metrics_file, evaluator.cache_ready) == ("metrics.json", True)
    assert repr(evaluator) == "LoaderEvaluator([7], mode='replay')"


def test_the_summary_prints_the_lines_of_dalis_class(capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = LoaderEvaluator(Loader())
    list(evaluator)
    evaluator.print_summary()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "Loader Evaluator Summary:",
        "  Mode: log",
        "  Dataset size: 3",
        "  Number of batches: 3",
    ]
    assert "  Total batches processed: 3" in lines
    LoaderEvaluator(iter([1])).print_summary()
    assert "  Dataset size: unknown" in capsys.readouterr().out


def test_saved_metrics_are_read_as_the_run(tmp_path: Path) -> None:
    with pytest.warns(LoadevalWarning, match="no filename"):
        LoaderEvaluator(Loader()).save_metrics()
    evaluator = LoaderEvaluator(Loader(), metrics_file=tmp_path / "m.json")
    list(evaluator)
    evaluator.save_metrics()
    evaluator.save_metrics(tmp_path / "other.json")
    assert json.loads((tmp_path / "m.json").read_text())["total_batches"] == 3
    run = read_run(tmp_path / "other.json")
    assert run.steps.wait_ns.tolist() == evaluator.recorded().steps.wait_ns.tolist()


def test_closing_saves_the_metrics_that_were_asked_for(tmp_path: Path) -> None:
    """close() writes a metrics_file that is not there, unless no batch was measured."""
    path = tmp_path / "m.json"
    LoaderEvaluator(Loader(), metrics_file=path).close()
    assert not path.exists()
    with LoaderEvaluator(Loader(), metrics_file=path) as evaluator:
        list(evaluator)
    assert read_run(path).closed
    before = path.read_text()
    with LoaderEvaluator(Loader(), metrics_file=path) as evaluator:
        list(evaluator)
    assert path.read_text() == before


def test_metrics_that_cannot_be_saved_at_close_are_said(tmp_path: Path) -> None:
    evaluator = LoaderEvaluator(Loader(), metrics_file=tmp_path / "gone" / "m.json")
    list(evaluator)
    with pytest.warns(LoadevalWarning, match="could not be saved"):
        evaluator.close()


def test_a_closed_evaluator_serves_unmeasured(tmp_path: Path) -> None:
    evaluator = LoaderEvaluator(Loader(), log_file=tmp_path / "run.jsonl")
    list(evaluator)
    evaluator.close()
    evaluator.close()
    assert list(evaluator) == ["a", "b", "c"]
    assert len(evaluator.recorded().steps) == 3
    assert evaluator.recorded().closed


def test_an_epoch_goes_on_after_close() -> None:
    """Unmeasured from there, so that nothing of it is held in memory; the run keeps the rest."""
    evaluator = LoaderEvaluator(range(3 * CHUNK))
    epoch = iter(evaluator)
    assert [next(epoch), next(epoch)] == [0, 1]
    evaluator.close()
    assert list(epoch) == list(range(2, 3 * CHUNK))
    assert len(evaluator.recorded().steps) == 2


def test_a_closed_replay_gives_the_loader_back() -> None:
    evaluator = LoaderEvaluator(Loader(), "replay", 1)
    assert list(evaluator) == ["a", "a", "a"]
    evaluator.close()
    assert list(evaluator) == ["a", "b", "c"]


def test_an_evaluator_that_is_dropped_closes_its_log(tmp_path: Path) -> None:
    evaluator = LoaderEvaluator(Loader(), log_file=tmp_path / "run.jsonl")
    list(evaluator)
    del evaluator
    gc.collect()
    assert read_run(tmp_path / "run.jsonl").closed


def test_the_run_is_named_after_its_file_or_as_asked(tmp_path: Path) -> None:
    named = LoaderEvaluator(Loader(), name="mine", log_file=tmp_path / "a.jsonl")
    filed = LoaderEvaluator(Loader(), log_file=tmp_path / "b.jsonl")
    plain = LoaderEvaluator(Loader(), "replay", epoch_batches=math.inf)
    names = [evaluator.recorded().header.name for evaluator in (named, filed, plain)]
    assert names == ["mine", "b", "Loader"]
    assert plain.recorded().header.settings["epoch_batches"] == "inf"


def test_a_loader_that_cannot_be_stood_in_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is iterated, with what its adapter says to do instead."""

    class Refusing(IterableAdapter):
        def refusal(self, loader: Any, mode: str) -> str:  # noqa: ARG002 - whatever they are
            return "measure it in place"

    register(monkeypatch, __name__, Refusing)
    evaluator = LoaderEvaluator(Loader())
    with pytest.raises(UsageError, match="measure it in place"):
        iter(evaluator)

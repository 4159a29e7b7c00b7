"""From no workers to some, and back: only where starting them and passing batches pay."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import RULES, diagnosis_of
from loadeval.analysis.rules.finding import Advice, Finding, Rule, Unknown
from loadeval.report.wording.advice import change_in_short, finding_advice
from loadeval.report.wording.findings import finding_sentence
from loadeval.runlog.model import Event
from loadeval.runlog.stages import WorkerStart
from tests.analysis.rules.conftest import MS, advised, finding, gains, outcome
from tests.analysis.rules.looked_into import looked_into

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runlog.model import Readings, Run
    from tests.analysis.rules.conftest import MakeRun

DATALOADER = {"persistent_workers": False, "length": 160}
FORKS = {"cpus_usable": 8, "python": "3.11.7", "platform": "Linux-6.8.0-x86_64"}


@pytest.fixture
def without(alternating: MakeRun) -> Callable[..., Run]:
    """A run without workers that was looked into; a batch has one tensor."""

    def make(environment: dict[str, Any] | None = None, **given: Any) -> Run:
        known = {**FORKS, **(environment or {})}
        loader = {**DATALOADER, **given.pop("loader", {})}
        given = {"workers": 0, "tensors": 1, **given}
        return looked_into(alternating, loader=loader, environment=known, **given)

    return make


def zero_workers(run: Run) -> Finding:
    return finding(Rule.ZERO_WORKERS, run)


def test_workers_that_load_what_takes_long(without: Callable[..., Run]) -> None:
    """They are advised with what they bring, and are to live on between epochs."""
    found = zero_workers(without(fetch=30))
    assert advised(found)[:2] == [Advice.RAISE, Advice.KEEP_WORKERS]
    gain = gains(found)[Advice.RAISE]
    assert 1 < float(str(gain["low"])) < float(str(gain["speedup"])) < 50 / 20
    assert not gains(found).get(Advice.KEEP_WORKERS)
    assert change_in_short(found) == "num_workers=2, persistent_workers=True"


def test_workers_that_pass_many_tensors(without: Callable[..., Run]) -> None:
    """It takes longer than loading them, so none are advised."""
    found = zero_workers(without(fetch=5, step=3, tensors=60))
    assert Advice.NO_WORKERS_HELP in advised(found)
    assert not {Advice.RAISE, Advice.TRY_WORKERS, Advice.KEEP_WORKERS} & {*advised(found)}
    assert change_in_short(found) == "make loading cheaper"


def test_batches_of_arrays_go_through_a_pipe(without: Callable[..., Run]) -> None:
    """Each byte of them takes as long as is known of pipes."""
    run = without(fetch=8, step=3, tensors=0)
    run.steps.nbytes[:] = 20_000_000
    assert Advice.NO_WORKERS_HELP in advised(zero_workers(run))


@pytest.mark.parametrize(
    "started",
    [
        {"environment": {"python": "3.14.1"}},
        {"environment": {"platform": "macOS-15.1-arm64"}},
        {"loader": {"start_method": "spawn"}},
    ],
)
def test_workers_that_take_long_to_start(
    without: Callable[..., Run], started: dict[str, Any]
) -> None:
    """Where Python does not fork them, short runs are over before they pay."""
    assert Advice.RAISE not in advised(zero_workers(without(fetch=8, **started)))
    assert Advice.RAISE in advised(zero_workers(without(fetch=8)))


def test_epochs_that_end_soon(without: Callable[..., Run]) -> None:
    """Each begins with a batch that nothing was loaded ahead of, and with waking the workers."""
    short, long = (
        gains(zero_workers(without(fetch=30, loader={"length": length})))[Advice.RAISE]
        for length in (20, 2000)
    )
    assert float(str(short["speedup"])) < float(str(long["speedup"]))


def test_a_large_process_takes_long_to_fork(
    without: Callable[..., Run], with_cores: MakeRun
) -> None:
    """For its page tables are copied, as far as its memory was read."""

    def start_ns(rss_bytes: float | None) -> float:
        run = with_cores(without(fetch=30), process=(1.0, 1.0))
        readings = [_with_memory(one, rss_bytes) for one in run.readings]
        recorded = Case.of(replace(run, readings=tuple(readings))).recorded
        assert recorded is not None
        return recorded.start_ns

    assert start_ns(4e9) - start_ns(None) == pytest.approx(100 * MS)
    assert start_ns(np.nan) == start_ns(None)


def _with_memory(one: Readings, rss_bytes: float | None) -> Readings:
    if one.subject != "process" or rss_bytes is None:
        return one
    return replace(one, values={**one.values, "rss_bytes": np.full(len(one), rss_bytes)})


def test_what_starting_took_is_known_of_workers(alternating: MakeRun) -> None:
    """Of each, in a typical epoch."""
    starts = [
        WorkerStart(epoch, worker, epoch * MS, MS, (epoch + ready) * MS, 0)
        for epoch, of_epoch in enumerate([(30, 40), (50, 60), (200, 900)])
        for worker, ready in enumerate(of_epoch)
    ]
    run = replace(looked_into(alternating, fetch=60), worker_starts=tuple(starts))
    recorded = Case.of(run).recorded
    assert recorded is not None
    assert recorded.start_ns == 30 * MS


def test_tensors_that_were_not_counted(without: Callable[..., Run]) -> None:
    """What passing a batch takes is then not known, and nothing is promised."""
    found = zero_workers(without(fetch=30, tensors=-1))
    assert advised(found)[:2] == [Advice.TRY_WORKERS, Advice.KEEP_WORKERS]
    assert not gains(found)[Advice.TRY_WORKERS]
    assert "only if measuring shows that it helps" in finding_advice(found)


def test_workers_that_may_be_slower(without: Callable[..., Run]) -> None:
    """They are to be tried, with what is predicted, which includes a loss."""
    found = zero_workers(without(fetch=10, step=10, tensors=12))
    assert advised(found)[0] == Advice.TRY_WORKERS
    gain = gains(found)[Advice.TRY_WORKERS]
    assert float(str(gain["low"])) < 1 < float(str(gain["speedup"]))
    assert change_in_short(found) == "try raising num_workers from 0 to 1"


def test_a_loader_that_nobody_looked_into(alternating: MakeRun) -> None:
    """Its workers are to be tried too, under the name that every DataLoader's has."""
    backend = "torch_geometric.loader.dataloader.DataLoader"
    run = alternating(wait=30, backend=backend, workers=0, **DATALOADER)
    found = zero_workers(run)
    assert advised(found)[:2] == [Advice.TRY_WORKERS, Advice.KEEP_WORKERS]
    assert found.changes[0].values["setting"] == "num_workers"


def test_a_loader_of_no_dataloader(alternating: MakeRun) -> None:
    """Nothing is known of workers that live on."""
    found = zero_workers(alternating(wait=30, backend="grain.DataLoader", workers=0))
    assert Advice.KEEP_WORKERS not in advised(found)
    assert found.changes[0].values["setting"] == "the number of workers"


def test_a_loader_that_a_thread_reads(without: Callable[..., Run]) -> None:
    """It may load ahead of training, so that nothing is loaded ahead is not known."""
    event = Event(0, "the loader is read in another thread", "read in a thread")
    run = replace(without(fetch=30), events=(event,))
    assert outcome(Rule.ZERO_WORKERS, run) is Unknown.READ_IN_THREAD


def test_threads_of_no_workers(without: Callable[..., Run]) -> None:
    """Workers that do not exist are not told to compute in one thread each."""
    found = RULES[Rule.OVERSUBSCRIPTION](Case.of(without(fetch=30, run_queue=0.4, others=0.6)))
    assert isinstance(found, Finding)
    assert advised(found) == [Advice.FREE_CPUS]
    assert finding_sentence(found).startswith("Loading is ready to run but waits for a CPU")


@pytest.fixture
def run(alternating: MakeRun) -> Callable[..., Run]:
    return partial(looked_into, alternating, loader=DATALOADER)


def test_batches_that_take_longer_to_pass_than_to_load(run: Callable[..., Run]) -> None:
    """Without workers training is faster, as is predicted: that comes first."""
    found = finding(Rule.TRANSFER, run(fetch=2, pickle=8, receive=14, step=10))
    assert advised(found)[0] == Advice.LOAD_IN_TRAINING
    gain = gains(found)[Advice.LOAD_IN_TRAINING]
    assert float(str(gain["speedup"])) == pytest.approx(2, rel=0.05)
    assert change_in_short(found) == "set num_workers=0"


def test_batches_that_take_longer_to_load_than_to_pass(run: Callable[..., Run]) -> None:
    """Workers are worth it."""
    found = finding(Rule.TRANSFER, run(fetch=30, pickle=2, receive=20, step=10))
    assert advised(found) == [Advice.SEND_FEWER]


def test_pinning_without_workers(run: Callable[..., Run]) -> None:
    """It is no remedy where training would have to pin as long."""
    found = finding(Rule.PINNING, run(fetch=10, pin=40))
    assert Advice.LOAD_IN_TRAINING not in advised(found)


def test_nothing_is_said_of_no_workers_that_is_not_predicted(alternating: MakeRun) -> None:
    """Where the step's threads spin, nothing is."""
    case = Case.of(looked_into(alternating, fetch=2, pickle=8, receive=14, step=10))
    vars(case)["model"] = None
    found = next(one for one in diagnosis_of(case).findings if one.rule == Rule.TRANSFER)
    assert Advice.LOAD_IN_TRAINING not in [one.code for one in found.changes]

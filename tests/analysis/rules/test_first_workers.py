"""From no workers to some, and back: only where starting them and passing batches pay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.case import Case
from loadeval.analysis.rules.diagnosis import RULES, diagnosis_of
from loadeval.analysis.rules.finding import Advice, Finding, Rule, Unknown
from loadeval.data.lines import Event, WorkerStart
from loadeval.report.wording.advice import change_in_short, finding_advice
from loadeval.report.wording.findings import finding_sentence
from tests.analysis.rules.conftest import advised, finding_of, gains, outcome
from tests.runs.given import MS, alternating, cores_read
from tests.runs.looked_into import looked_into
from tests.runs.tables import readings_lines, replace, with_steps

if TYPE_CHECKING:
    from loadeval.data.lines import Readings
    from loadeval.data.run import Run

DATALOADER: dict[str, Any] = {"persistent_workers": False, "length": 160}
FORKS = {"cpus_usable": 8, "python": "3.11.7", "platform": "Linux-6.8.0-x86_64"}


def without(environment: dict[str, Any] | None = None, **given: Any) -> Run:
    """A run without workers that was looked into; a batch has one tensor."""
    known = {**FORKS, **(environment or {})}
    loader = {**DATALOADER, **given.pop("loader", {})}
    given = {"workers": 0, "tensors": 1, **given}
    return looked_into(loader=loader, environment=known, **given)


def zero_workers(run: Run) -> Finding:
    return finding_of(Rule.ZERO_WORKERS, run)


def test_workers_that_load_what_takes_long() -> None:
    """They are advised with what they bring, and are to live on between epochs."""
    finding = zero_workers(without(fetch=30))
    assert advised(finding)[:2] == [Advice.RAISE, Advice.KEEP_WORKERS]
    gain = gains(finding)[Advice.RAISE]
    assert 1 < float(str(gain["low"])) < float(str(gain["speedup"])) < 50 / 20
    assert not gains(finding).get(Advice.KEEP_WORKERS)
    assert change_in_short(finding) == "num_workers=2, persistent_workers=True"


def test_workers_that_pass_many_tensors() -> None:
    """It takes longer than loading them, so none are advised."""
    finding = zero_workers(without(fetch=5, step=3, tensors=60))
    assert Advice.NO_WORKERS_HELP in advised(finding)
    assert not {Advice.RAISE, Advice.TRY_WORKERS, Advice.KEEP_WORKERS} & {*advised(finding)}
    assert change_in_short(finding) == "make loading cheaper"


def test_batches_of_arrays_go_through_a_pipe() -> None:
    """Each byte of them takes as long as is known of pipes."""
    run = with_steps(without(fetch=8, step=3, tensors=0), nbytes=20_000_000)
    assert Advice.NO_WORKERS_HELP in advised(zero_workers(run))


@pytest.mark.parametrize(
    "started",
    [
        {"environment": {"python": "3.14.1"}},
        {"environment": {"platform": "macOS-15.1-arm64"}},
        {"loader": {"start_method": "spawn"}},
    ],
)
def test_workers_that_take_long_to_start(started: dict[str, Any]) -> None:
    """Where Python does not fork them, short runs are over before they pay."""
    assert Advice.RAISE not in advised(zero_workers(without(fetch=8, **started)))
    assert Advice.RAISE in advised(zero_workers(without(fetch=8)))


def test_epochs_that_end_soon() -> None:
    """Each begins with a batch that nothing was loaded ahead of, and with waking the workers."""
    short, long = (
        gains(zero_workers(without(fetch=30, loader={"length": length})))[Advice.RAISE]
        for length in (20, 2000)
    )
    assert float(str(short["speedup"])) < float(str(long["speedup"]))


def test_a_large_process_takes_long_to_fork() -> None:
    """For its page tables are copied, as far as its memory was read."""

    def start_ns(rss_bytes: float | None) -> float:
        run = cores_read(without(fetch=30), process=(1.0, 1.0))
        readings = [_with_memory(reading, rss_bytes) for reading in readings_lines(run)]
        recorded = Case(replace(run, readings=tuple(readings))).recorded
        assert recorded is not None
        return recorded.start_ns

    assert start_ns(4e9) - start_ns(None) == pytest.approx(100 * MS)
    assert start_ns(np.nan) == start_ns(None)


def _with_memory(given: Readings, rss_bytes: float | None) -> Readings:
    if given.subject != "process" or rss_bytes is None:
        return given
    return replace(
        given, values={**given.values, "rss_bytes": np.full(len(given.time_ns), rss_bytes)}
    )


def test_what_starting_took_is_known_of_workers() -> None:
    """It is known of each, in a typical epoch."""
    starts = [
        WorkerStart(epoch, worker, epoch * MS, MS, (epoch + ready) * MS, 0)
        for epoch, of_epoch in enumerate([(30, 40), (50, 60), (200, 900)])
        for worker, ready in enumerate(of_epoch)
    ]
    run = replace(looked_into(fetch=60), worker_starts=tuple(starts))
    recorded = Case(run).recorded
    assert recorded is not None
    assert recorded.start_ns == 30 * MS


def test_tensors_that_were_not_counted() -> None:
    """What passing a batch takes is then not known, and nothing is promised."""
    finding = zero_workers(without(fetch=30, tensors=-1))
    assert advised(finding)[:2] == [Advice.TRY_WORKERS, Advice.KEEP_WORKERS]
    assert not gains(finding)[Advice.TRY_WORKERS]
    assert "only if measuring shows that it helps" in finding_advice(finding)


def test_workers_that_may_be_slower() -> None:
    """They are to be tried, with what is predicted, which includes a loss."""
    finding = zero_workers(without(fetch=10, step=10, tensors=12))
    assert advised(finding)[0] == Advice.TRY_WORKERS
    gain = gains(finding)[Advice.TRY_WORKERS]
    assert float(str(gain["low"])) < 1 < float(str(gain["speedup"]))
    assert change_in_short(finding) == "try raising num_workers from 0 to 1"


def test_a_loader_that_nobody_looked_into() -> None:
    """Its workers are to be tried too, under the name that every DataLoader's has."""
    backend = "torch_geometric.loader.dataloader.DataLoader"
    run = alternating(wait=30, backend=backend, workers=0, **DATALOADER)
    finding = zero_workers(run)
    assert advised(finding)[:2] == [Advice.TRY_WORKERS, Advice.KEEP_WORKERS]
    assert finding.changes[0].values["setting"] == "num_workers"


def test_a_loader_of_no_dataloader() -> None:
    """Nothing is known of workers that live on."""
    finding = zero_workers(alternating(wait=30, backend="grain.DataLoader", workers=0))
    assert Advice.KEEP_WORKERS not in advised(finding)
    assert finding.changes[0].values["setting"] == "the number of workers"


def test_a_loader_that_a_thread_reads() -> None:
    """It may load ahead of training, so that nothing is loaded ahead is not known."""
    event = Event(0, "the loader is read in another thread", "read in a thread")
    run = replace(without(fetch=30), events=(event,))
    assert outcome(Rule.ZERO_WORKERS, run) is Unknown.READ_IN_THREAD


def test_threads_of_no_workers() -> None:
    """Workers that do not exist are not told to compute in one thread each."""
    finding = RULES[Rule.OVERSUBSCRIPTION](Case(without(fetch=30, run_queue=0.4, others=0.6)))
    assert isinstance(finding, Finding)
    assert advised(finding) == [Advice.FREE_CPUS]
    assert finding_sentence(finding).startswith("Loading is ready to run but waits for a CPU")


def with_workers(**given: Any) -> Run:
    return looked_into(loader=DATALOADER, **given)


def test_batches_that_take_longer_to_pass_than_to_load() -> None:
    """Without workers training is faster, as is predicted: that comes first."""
    finding = finding_of(Rule.TRANSFER, with_workers(fetch=2, pickle=8, receive=14, step=10))
    assert advised(finding)[0] == Advice.LOAD_IN_TRAINING
    gain = gains(finding)[Advice.LOAD_IN_TRAINING]
    assert float(str(gain["speedup"])) == pytest.approx(2, rel=0.05)
    assert change_in_short(finding) == "set num_workers=0"


def test_batches_that_take_longer_to_load_than_to_pass() -> None:
    """Workers are worth it."""
    finding = finding_of(Rule.TRANSFER, with_workers(fetch=30, pickle=2, receive=20, step=10))
    assert advised(finding) == [Advice.SEND_FEWER]


def test_pinning_without_workers() -> None:
    """It is no remedy where training would have to pin as long."""
    finding = finding_of(Rule.PINNING, with_workers(fetch=10, pin=40))
    assert Advice.LOAD_IN_TRAINING not in advised(finding)


def test_nothing_is_said_of_no_workers_that_is_not_predicted() -> None:
    """Where the step's threads spin, nothing is."""
    case = Case(looked_into(fetch=2, pickle=8, receive=14, step=10))
    vars(case)["model"] = None
    transfer = next(
        finding for finding in diagnosis_of(case).findings if finding.rule == Rule.TRANSFER
    )
    assert Advice.LOAD_IN_TRAINING not in [change.code for change in transfer.changes]

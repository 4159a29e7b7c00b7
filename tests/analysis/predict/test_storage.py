"""Which share of a wait for storage is that of a server, from simulated workers that read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loadeval.analysis.predict.costs import Server
from loadeval.analysis.predict.prediction import Assumption, Limit
from loadeval.analysis.predict.recorded import Recorded
from loadeval.analysis.predict.storage import (
    NOT_SHARED,
    Servers,
    StorageQueue,
    StorageWait,
    StorageWaits,
    served_ns,
    used_by,
)
from loadeval.analysis.predict.whatif import LoaderModel, whatif
from loadeval.runlog.columns import UNKNOWN
from tests.runs.given import MS
from tests.runs.loader_model import run_of, stage_times
from tests.runs.looked_into import COUNT, logged
from tests.runs.reading import reading

if TYPE_CHECKING:
    from loadeval.runlog.model import Run

LONE_MS = 40.0


def servers_of(*runs: Run) -> Servers:
    return LoaderModel(list(map(Recorded.of, runs))).servers


def test_waits_as_long_however_many_are_in_flight_are_latency() -> None:
    assert StorageWait.of(servers_of(reading(0.0, 3))) is StorageWait.LATENCY


def test_waits_that_grow_with_those_in_flight_are_of_bandwidth() -> None:
    assert StorageWait.of(servers_of(reading(1.0, 1), reading(1.0, 2))) is StorageWait.BANDWIDTH


def test_one_worker_does_not_tell() -> None:
    servers = servers_of(reading(1.0, 1))
    assert (servers.shares.low, servers.shares.high) == (0.0, 1.0)
    assert StorageWait.of(servers) is StorageWait.NOT_KNOWN


@pytest.mark.parametrize("server", [0.0, 1.0])
@pytest.mark.parametrize("in_turn", [False, True])
def test_runs_with_one_worker_and_with_two_tell(server: float, in_turn: bool) -> None:
    runs = [reading(server, workers, in_turn=in_turn) for workers in (1, 2)]
    shares = servers_of(*runs).shares
    assert shares.low <= server <= shares.high
    assert shares.high - shares.low < 0.5


def test_waits_for_those_before_tell_of_a_server_that_serves_in_turn() -> None:
    servers = servers_of(reading(1.0, 1, in_turn=True), reading(1.0, 2, in_turn=True))
    assert not servers.likely.varies
    assert servers.likely.share > 0.8


@pytest.mark.parametrize(("fetch_of_two", "share"), [(52, 0.0), (80, 1.0)])
def test_how_fast_each_run_is_tells_where_single_waits_do_not(
    fetch_of_two: float, share: float
) -> None:
    """It is known of a few only when they began."""
    cpu_ns, number = np.full(COUNT, 12.0) * MS, np.arange(COUNT)
    runs = [
        logged(
            workers=workers,
            step=0.5,
            fetch=fetch,
            cpu_ns=cpu_ns,
            fetch_start_ns=np.where(number % 10 == 0, number // workers * fetch * MS, UNKNOWN),
        )
        for workers, fetch in ((1, 52), (2, fetch_of_two))
    ]
    assert servers_of(*runs).likely.share == share


def test_pieces_that_are_read_in_turn_keep_a_server_busy() -> None:
    runs = [reading(1.0, workers, in_turn=True, pieces=4) for workers in (1, 2)]
    servers = servers_of(*runs)
    assert servers.likely == Server(1.0)
    assert whatif(runs, num_workers=6).speedup.value == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("server", [0.0, 1.0])
@pytest.mark.parametrize("in_turn", [False, True])
def test_the_prediction_of_more_workers_is_that_of_the_storage(
    server: float, in_turn: bool
) -> None:
    prediction = whatif(reading(server, 2, in_turn=in_turn), num_workers=6)
    real = LoaderModel.of(reading(server, 6, in_turn=in_turn)).present.iteration_ns
    assert prediction.iteration_ns.value == pytest.approx(real, rel=0.1)
    assert prediction.iteration_ns.low < real < prediction.iteration_ns.high


@pytest.mark.parametrize("server", [0.0, 1.0])
@pytest.mark.parametrize("in_turn", [False, True])
def test_one_worker_is_predicted_from_the_two_that_wait_for_each_other(
    server: float, in_turn: bool
) -> None:
    prediction = whatif(reading(server, 2, in_turn=in_turn), num_workers=1)
    real = LoaderModel.of(reading(server, 1, in_turn=in_turn)).present.iteration_ns
    assert prediction.iteration_ns.value == pytest.approx(real, rel=0.1)


def test_a_range_of_what_is_not_known_covers_both() -> None:
    predicted = whatif(reading(0.0, 1), num_workers=4).iteration_ns
    for server in (0.0, 1.0):
        real = LoaderModel.of(reading(server, 4)).present.iteration_ns
        assert predicted.low < real < predicted.high


def test_the_range_covers_both_for_first_workers_too() -> None:
    predicted = whatif(reading(0.0, 0), num_workers=4)
    assert predicted.speedup.high / predicted.speedup.low > 2


def test_more_workers_than_a_server_serves_share_its_bandwidth() -> None:
    prediction = whatif([reading(1.0, 1), reading(1.0, 2)], num_workers=6)
    assert Assumption.BANDWIDTH_SHARED in [each.code for each in prediction.assumptions]
    assert prediction.limit is Limit.STORAGE


def test_workers_that_wait_for_latency_do_so_in_parallel() -> None:
    prediction = whatif(reading(0.0, 3), num_workers=6)
    assert Assumption.BLOCKED_IN_PARALLEL in [each.code for each in prediction.assumptions]


def test_storage_that_is_accounted_for_elsewhere_is_not_shared() -> None:
    assert LoaderModel.of(reading(1.0, 3), storage_apart=True).servers == NOT_SHARED


def test_what_does_not_wait_is_not_shared() -> None:
    assert servers_of(logged(fetch=60)) == NOT_SHARED


def test_without_batches_nothing_is_known() -> None:
    waits = StorageWaits.of(run_of(stage_times()))
    assert waits.servers(0.3) == Servers.any(0.3)
    costs = Recorded.of(reading(1.0, 2)).costs
    assert waits.alone(costs, Server(1.0)).blocked_ns is costs.blocked_ns


def waits_for(blocked_ns: float, fetches: float) -> StorageWaits:
    """Batches with as many fetches in flight all the time."""
    nothing, many = np.zeros(50), np.full(50, fetches)
    return StorageWaits(nothing + blocked_ns, nothing, many, many, nothing, nothing)


def test_batches_that_did_not_wait_tell_nothing() -> None:
    assert waits_for(0.0, 1.0).servers(0.3) == Servers.any(0.3)


def test_waits_that_fit_any_share_tell_nothing() -> None:
    servers = waits_for(40 * MS, 2.0).servers(0.3)
    assert servers.likely == Server(0.3, varies=True)
    assert (servers.shares.low, servers.shares.high) == (0.0, 1.0)


@pytest.mark.parametrize("in_turn", [False, True])
def test_fetches_that_are_alone_wait_for_less(in_turn: bool) -> None:
    recorded = Recorded.of(reading(1.0, 2, in_turn=in_turn))
    server = Server(1.0, varies=not in_turn)
    alone = recorded.storage_waits.alone(recorded.costs, server)
    assert alone.blocked_ns.mean() == pytest.approx(LONE_MS * MS, rel=0.1)
    assert alone.server == server


def test_loaders_share_a_server_equally() -> None:
    """Two take twice as long, but for what is latency."""
    costs = Recorded.of(reading(1.0, 1)).present(0.0, Server(0.5)).costs
    shared = used_by(costs, 2)
    server_ns = costs.blocked_ns * costs.server.share
    assert shared.blocked_ns * shared.server.share == pytest.approx(2 * server_ns)
    assert shared.blocked_ns - shared.blocked_ns * shared.server.share == pytest.approx(
        costs.blocked_ns - server_ns
    )


def test_a_server_that_varies_serves_as_long_on_average() -> None:
    costs = Recorded.of(reading(1.0, 1)).present(0.0, Server(0.5, varies=True)).costs
    served = served_ns(costs)
    assert served.mean() == pytest.approx(costs.blocked_ns.mean() / 2, rel=0.01)
    assert served.std() > 0.5 * served.mean()


def test_a_server_serves_one_fetch_after_the_other() -> None:
    queue = StorageQueue()
    queue.pass_time(5.0)
    assert queue.left_ns == math.inf
    queue.begin(0, 10.0)
    queue.pass_time(4.0)
    queue.begin(1, 3.0)
    assert queue.left_ns == 6.0
    queue.pass_time(6.0)
    assert queue.end() == 0
    assert queue.left_ns == 3.0
    queue.pass_time(3.0)
    assert queue.end() == 1
    assert queue.left_ns == math.inf

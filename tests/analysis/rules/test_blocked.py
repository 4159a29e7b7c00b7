"""Workers that wait for the network: for answers or for bytes, and what would help.

A step takes 20 ms and fetching a batch of four samples 120, nearly all of which is waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.rules.finding import Advice, Problem, Rule
from loadeval.data.columns import UNKNOWN
from loadeval.data.lines import CodeSamples
from loadeval.report.wording.advice import change_in_short
from loadeval.report.wording.findings import describe
from tests.analysis.rules.conftest import advised, finding_of, gains
from tests.runs.given import MS, level
from tests.runs.looked_into import COUNT, looked_into
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.analysis.rules.finding import Finding
    from loadeval.data.run import Run

RECEIVED = "received_bytes_per_s"
LINE = "data.py:35 download"


def downloading(
    megabytes: float | None = 0.06,
    kernel: str = "sk_wait_data",
    calls: dict[str, int] | None = None,
    **given: Any,
) -> Run:
    """A run whose machine received so many MB for a batch, and workers were blocked in `kernel`."""
    functions = {f"{LINE} > {name}": count for name, count in (calls or {}).items()}
    seen = CodeSamples(0, {LINE: 10}, {f"{LINE} > {kernel}": 90}, functions)
    given = {"fetch": 120, "blocked": 0.9, "seen": (seen,), "pairs": 10, **given}
    run = looked_into(**given)
    if megabytes is None:
        return run
    seconds = 1999 * 0.01  # of the readings
    rates = np.full(2000, megabytes * 1e6 * COUNT / seconds)
    rates[0] = np.nan  # the first is no rate yet
    quiet = level("host", "process", "cpu_cores", 1.0)
    return replace(run, readings=(quiet, level("host", "machine", RECEIVED, rates)))


def finding_in(run: Run) -> Finding:
    return finding_of(Rule.STORAGE_LATENCY, run)


def test_latency() -> None:
    """Of 60 ms a batch, whose 60 kB are for four samples, that wait 27 ms each."""
    finding = finding_in(downloading())
    assert finding.problem.code is Problem.NETWORK_LATENCY
    assert finding.problem.values["sample_ns"] == pytest.approx(27 * MS, rel=0.02)
    assert finding.problem.values["sample_bytes"] == pytest.approx(15_000, rel=0.02)
    assert set(advised(finding)) == {
        Advice.RAISE,
        Advice.REQUESTS_AT_ONCE,
        Advice.CACHE_LOCALLY,
    }
    said = describe(finding)
    assert "Each sample waits 27.0 ms for the network, for 15.0 kB, at data.py:35 download" in said
    assert "that is latency, not bandwidth" in said
    at_once = [each for each in finding.changes if each.code is Advice.REQUESTS_AT_ONCE]
    finding = replace(finding, changes=tuple(at_once))
    assert change_in_short(finding) == "4 requests at once, in __getitems__"


def test_requests_at_once_divide_what_is_waited() -> None:
    """Of 120 ms 12 are computed, and 108 become 27: two workers then bring one each 20 ms."""
    gain = gains(finding_in(downloading()))
    assert float(str(gain[Advice.REQUESTS_AT_ONCE]["speedup"])) == pytest.approx(60 / 20, rel=0.1)
    assert set(gain[Advice.CACHE_LOCALLY]) == {"at_most"}
    of_two = gains(finding_in(downloading(samples=2)))[Advice.REQUESTS_AT_ONCE]
    assert float(str(of_two["speedup"])) < float(str(gain[Advice.REQUESTS_AT_ONCE]["speedup"]))


def test_a_new_connection_for_each_sample() -> None:
    """Each waits as a request does, so that a kept one halves what is waited."""
    run = downloading(connections=np.where(np.arange(COUNT) == 2, 4, UNKNOWN), requests=4)
    finding = finding_in(run)
    assert Advice.KEEP_CONNECTION in advised(finding)
    gain = gains(finding)[Advice.KEEP_CONNECTION]
    assert float(str(gain["speedup"])) == pytest.approx(60 / 33, rel=0.1)
    assert "New ones for a sample: 1; each waits for the server" in describe(finding)
    evidence = {fact.name: fact.value for fact in finding.evidence}
    assert evidence["new connections for a sample"] == evidence["HTTP requests for a sample"] == 1


@pytest.mark.parametrize("given", [{}, {"connections": 0}, {"connections": 1, "requests": 4}])
def test_connections_that_are_kept(given: dict[str, Any]) -> None:
    """Or not counted, or few."""
    assert Advice.KEEP_CONNECTION not in advised(finding_in(downloading(**given)))


def test_several_requests_share_a_connection() -> None:
    """Of three round trips one is the connection's; where none is counted, of two."""
    shared, alone = (
        next(
            change.values["round_trips"]
            for change in finding_in(downloading(connections=4, requests=requests)).changes
            if change.code is Advice.KEEP_CONNECTION
        )
        for requests in (8, 0)
    )
    assert (shared, alone) == (1.5, 2)


def test_bandwidth() -> None:
    """More workers share the same connection, and are not advised."""
    finding = finding_in(downloading(megabytes=3))
    assert finding.problem.code is Problem.NETWORK_BANDWIDTH
    assert advised(finding) == [Advice.FETCH_LESS]
    assert "for 3.00 MB a batch (50.0 MB/s)" in describe(finding)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"megabytes": 2.1}, Problem.NETWORK_LATENCY),  # in 108 ms
        ({"megabytes": 2.2}, Problem.NETWORK_BANDWIDTH),
        ({"megabytes": np.nan}, Problem.WORKERS_BLOCKED),
        ({"megabytes": None}, Problem.WORKERS_BLOCKED),  # as in older logs
        ({"kernel": ""}, Problem.WORKERS_BLOCKED),
        ({"kernel": "hrtimer_nanosleep"}, Problem.WORKERS_BLOCKED),
        ({"kernel": "do_poll", "calls": {"requests.api.get": 39}}, Problem.WORKERS_BLOCKED),
        ({"kernel": "do_poll", "calls": {"requests.api.get": 41}}, Problem.NETWORK_LATENCY),
        ({"kernel": "", "calls": {"connection.recv": 90}}, Problem.NETWORK_LATENCY),
        # A thread of the library's waits for the network, and the worker for that thread.
        ({"kernel": "futex_do_wait", "calls": {"fsspec.asyn.sync": 90}}, Problem.NETWORK_LATENCY),
        ({"kernel": "futex_do_wait", "calls": {"queue.Queue.get": 90}}, Problem.THREADS_AWAITED),
    ],
)
def test_what_is_waited_for(given: dict[str, Any], problem: Problem) -> None:
    """The kernel or the library says that it is the network, and received bytes what of it."""
    assert finding_in(downloading(**given)).problem.code is problem


@pytest.mark.parametrize("given", [{"samples": 1}, {"slowest_ns": UNKNOWN}])
def test_what_is_read_at_once_already(given: dict[str, Any]) -> None:
    """One sample, or those of `__getitems__`: there is no more to ask for at once."""
    finding = finding_in(downloading(**given))
    assert finding.problem.code is Problem.NETWORK_LATENCY
    assert Advice.REQUESTS_AT_ONCE not in advised(finding)

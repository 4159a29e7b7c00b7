"""Storage that workers wait for: whether each waits by itself, or all share bandwidth.

A fetch waits for an answer, however many others wait, and then for its bytes, which come from a
server that serves one fetch after the other. Which share of a lone wait is the server's is fitted
to the batches of a run: 0 is latency, and 1 bandwidth. With a server, a wait grows with the others
that are in flight meanwhile. How, is tried in three ways. A server whose fetches differ, as on a
disk, lets them queue at random, by exact mean value analysis. One that serves all alike lets
none wait longer than those before it take: either batch by batch, where one comes no sooner than
its service after the one before, or piece by piece, where as much is served as was asked for
during a fetch. With one worker nothing is in flight beside a fetch, and any share fits.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loadeval.analysis.inside.timeline import or_0
from loadeval.analysis.predict.costs import MOST_BATCHES, NO_SERVER, Server
from loadeval.analysis.predict.prediction import Range
from loadeval.runlog.columns import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from loadeval.analysis.estimate.stats import Series
    from loadeval.analysis.predict.costs import Costs
    from loadeval.runlog.model import Run
    from loadeval.runlog.stages import StageTimes

SHARES = np.arange(11) / 10
LONE_WAITS = np.linspace(0.05, 1.2, 116)
"""Fetches wait for one of these parts of the median wait if alone."""
FINER = np.linspace(-0.01, 0.01, 21)
"""Then for so much more or less than the one that fits best."""
AS_GOOD, AS_LITTLE_OFF = 0.003, 0.1
"""Servers fit as well where their mean errors differ by less than this part of the median wait.

And by this part of the least error in addition.
"""
MOST_WEIGHT = 10.0
"""Each tenth of a fetch in flight counts as much as another, but a batch no more than this."""
RESAMPLED, BLOCK, FEWEST_BLOCKS = 200, 20, 5
"""Blocks of so many batches are drawn so often: neighbours are alike."""
RARELY = 0.025
"""The share of draws that may lie beyond either end of a range."""
FEWEST_BATCHES = 20
MOSTLY = 0.5
BUSY = 0.9
"""A server that is busy all the time in fewer than a tenth of fetches is not told from none."""
HALVINGS = 30


class Servers(NamedTuple):
    """The server that storage is likely to have, and the `others` that it may have."""

    likely: Server
    others: tuple[Server, ...] = ()

    @classmethod
    def any(cls, usual: float) -> Servers:
        """Nothing is known; a share of `usual` is likely."""
        return cls(_varying(usual), (NO_SERVER, Server(1.0), Server(1.0, varies=True)))

    @property
    def shares(self) -> Range:
        """The server's share of a lone wait."""
        shares = [server.share for server in (self.likely, *self.others)]
        return Range(self.likely.share, min(shares), max(shares))


NOT_SHARED = Servers(NO_SERVER)
"""No server: waits do not grow with the others in flight, such as a sleep."""


class StorageWait(Enum):
    """What waiting for storage depends on."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    NOT_KNOWN = "not known"

    @classmethod
    def of(cls, servers: Servers) -> StorageWait:
        """What it is mostly, whichever of them it has."""
        shares = servers.shares
        if shares.high <= MOSTLY:
            return cls.LATENCY
        return cls.BANDWIDTH if shares.low >= MOSTLY else cls.NOT_KNOWN


class StorageWaits(NamedTuple):
    """How long the fetch of each batch was blocked, and active, and what else was in flight.

    `fetching` is the mean number of fetches during it, itself included, and `waiting` how many of
    these were blocked. `ahead` of it were those of other workers that were under way when it began.
    The last batch of another worker before it came `previous_ns` after it began to wait, or 0.
    """

    blocked_ns: Series
    active_ns: Series
    fetching: Series
    waiting: Series
    ahead: Series
    previous_ns: Series

    @classmethod
    def of(cls, run: Run) -> StorageWaits:
        """Those of its first batches, without each worker's first, where CPU time was read."""
        first, left = run.header.loader.workers or 1, MOST_BATCHES
        parts = [np.empty((len(cls._fields), 0))]
        for times in run.stages:
            known = (times.fetch_start_ns != UNKNOWN) & (times.cpu_ns != UNKNOWN)
            part = times.part(known).part(slice(left))
            left -= len(part)
            parts.append(_waits(part)[:, part.batch >= first])
        return cls(*np.concatenate(parts, axis=1))

    @classmethod
    def joined(cls, waits: Sequence[StorageWaits]) -> StorageWaits:
        """Those of several runs."""
        return cls(*(np.concatenate(columns) for columns in zip(*waits, strict=True)))

    def servers(self, usual: float) -> Servers:
        """Those that fit; a share of `usual` is likely where it does as well as any."""
        median_ns = float(np.median(self.blocked_ns)) if len(self.blocked_ns) else 0.0
        if len(self.blocked_ns) < FEWEST_BATCHES or not median_ns:
            return Servers.any(usual)
        tried, errors = self._errors(median_ns)
        blocks = max(len(self.blocked_ns) // BLOCK, FEWEST_BLOCKS)
        of_blocks = np.stack(
            [part.sum(axis=2) for part in np.array_split(errors, blocks, axis=2)], axis=2
        )
        misfits = of_blocks.sum(axis=2).min(axis=1)
        as_good = AS_GOOD * len(self.blocked_ns) + AS_LITTLE_OFF * misfits.min()
        draws = np.random.default_rng(0).multinomial(blocks, [1 / blocks] * blocks, RESAMPLED)
        drawn = np.array([(of_blocks @ draw).min(axis=1) for draw in draws])
        is_fitting = drawn <= drawn.min(axis=1, keepdims=True) + as_good
        ends = [end for varies in (False, True) for end in _ends(tried, is_fitting, varies)]
        fits = zip(tried, misfits, strict=True)
        fitting = [server for server, misfit in fits if misfit <= misfits.min() + as_good]
        shares = [server.share for server in fitting]
        if min(shares) <= usual <= max(shares):
            return Servers(_varying(usual), tuple(ends))
        # The wait for an answer is hidden where a server is busy all the time: take all as its own.
        best = tried[int(misfits.argmin())]
        largest = max(server.share for server in fitting if server.varies is best.varies)
        return Servers(best._replace(share=largest), tuple(ends))

    def _errors(self, median_ns: float) -> tuple[list[Server], npt.NDArray[np.float64]]:
        """Servers that were tried, and by how many median waits each batch is off.

        By server, by how long a fetch alone waits, and by batch.
        """
        tenths = np.floor(10 * (self.waiting - 1)).astype(np.int64)
        weights = np.minimum(len(tenths) / np.bincount(tenths)[tenths], MOST_WEIGHT)
        weights *= len(weights) / weights.sum()
        scaled = StorageWaits(
            self.blocked_ns / median_ns,
            self.active_ns / median_ns,
            self.fetching,
            self.waiting,
            self.ahead,
            self.previous_ns / median_ns,
        )
        servers, errors = [], []
        for share in SHARES.tolist():
            for varies, expected in (
                (True, scaled.queued_at_random),
                (False, scaled.by_batch),
                (False, scaled.by_piece),
            ):
                lone = LONE_WAITS[:, np.newaxis]
                coarse = scaled.off_by(expected(share, lone)) * weights
                lone = lone[coarse.sum(axis=1).argmin()] + FINER[:, np.newaxis]
                finer = scaled.off_by(expected(share, lone)) * weights
                servers.append(_varying(share) if varies else Server(share))
                errors.append(np.concatenate([coarse, finer]))
        return servers, np.array(errors)

    def off_by(self, expected: Series) -> Series:
        """How far off what was expected is, which is no more than 1."""
        return np.fmin(np.abs(expected - self.blocked_ns), 1.0)

    def queued_at_random(self, share: float, lone: Series) -> Series:
        """How long fetches wait which wait for `lone` if alone, at a server that varies."""
        return lone * _times_as_long(share, self.waiting)

    def by_batch(self, share: float, lone: Series) -> Series:
        """The same at one that serves all alike, the whole of a fetch at a time."""
        longer = np.clip(self.previous_ns - (1 - share) * lone, 0.0, self.ahead * share * lone)
        waits: Series = lone + longer
        return waits

    def by_piece(self, share: float, lone: Series) -> Series:
        """The same at one that serves all alike, pieces of each in turn.

        NaN where the server was not busy all the time: then it is not told from one that is free.
        """
        busy_ns = share * lone * self.fetching - self.active_ns
        is_busy = np.quantile(busy_ns - lone, BUSY, axis=-1, keepdims=True) >= 0
        return np.where(is_busy, np.maximum(lone, busy_ns), np.nan)

    def alone(self, costs: Costs, server: Server) -> Costs:
        """`costs` with the waits of fetches that are alone, at that server."""
        costs = replace(costs, server=server)
        if not server.share or not len(self.blocked_ns):
            return costs
        if server.varies:
            left = 1 / float(_times_as_long(server.share, self.waiting).mean())
        else:
            left = self._left_in_turn(server.share)
        alone = replace(costs, blocked_ns=costs.blocked_ns * left)
        return alone.with_parts_in(alone.fetch_ns / np.maximum(costs.fetch_ns, 1.0))

    def _left_in_turn(self, share: float) -> float:
        """What is left of the mean wait alone, where pieces of all are served in turn."""
        mean_ns = float(self.blocked_ns.mean())
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            tried = (low + high) / 2
            busy_ns = share * tried * mean_ns * self.fetching - self.active_ns
            is_more = float(np.maximum(tried * mean_ns, busy_ns).mean()) > mean_ns
            low, high = (low, tried) if is_more else (tried, high)
        return high


def used_by(costs: Costs, loaders: int) -> Costs:
    """`costs` where so many loaders share the server equally."""
    longer = 1 + (loaders - 1) * costs.server.share
    server = costs.server._replace(share=loaders * costs.server.share / longer)
    return replace(costs, blocked_ns=costs.blocked_ns * longer, server=server)


def served_ns(costs: Costs) -> Series:
    """How long each batch is served: at a server that varies some far longer than others."""
    each_ns = costs.blocked_ns * costs.server.share
    if not costs.server.varies or not costs.server.share:
        return each_ns
    varied = np.random.default_rng(0).exponential(size=len(each_ns))
    varied_ns: Series = each_ns * (varied / varied.mean())
    return varied_ns


class StorageQueue:
    """Fetches that are served one after the other."""

    def __init__(self) -> None:
        self._left_ns = 0.0  # of the first
        self._queue: deque[tuple[int, float]] = deque()

    @property
    def left_ns(self) -> float:
        """How long it is until the first fetch is served."""
        return self._left_ns if self._queue else math.inf

    def begin(self, worker: int, service_ns: float) -> None:
        """A fetch of `worker` needs so long alone."""
        self._queue.append((worker, service_ns))
        if len(self._queue) == 1:
            self._left_ns = service_ns

    def pass_time(self, passed_ns: float) -> None:
        """Serve for so long, until the first fetch is served at most."""
        self._left_ns = max(self._left_ns - passed_ns, 0.0)

    def end(self) -> int:
        """The worker whose fetch is served first, and is now."""
        worker, _ = self._queue.popleft()
        self._left_ns = self._queue[0][1] if self._queue else 0.0
        return worker


def _ends(tried: Sequence[Server], is_fitting: npt.NDArray[np.bool_], varies: bool) -> list[Server]:
    """The servers of this kind with the least and the largest share that fit, but for a few."""
    kind = [number for number, server in enumerate(tried) if server.varies is varies]
    shares = np.array([tried[number].share for number in kind])
    of_kind = is_fitting[:, kind]
    of_kind = of_kind[of_kind.any(axis=1)]
    if len(of_kind) < RARELY * len(is_fitting):
        return []
    lows = np.where(of_kind, shares, 1.0).min(axis=1)
    highs = np.where(of_kind, shares, 0.0).max(axis=1)
    ends = (float(np.quantile(lows, RARELY)), float(np.quantile(highs, 1 - RARELY)))
    return [_varying(share) if varies else Server(share) for share in dict.fromkeys(ends)]


def _varying(share: float) -> Server:
    """A server that varies, if it is one."""
    return Server(share, varies=share > 0)


def _waits(times: StageTimes) -> npt.NDArray[np.float64]:
    """The columns of StorageWaits."""
    fetch_ns = or_0(times.fetch_ns) + or_0(times.collate_ns)
    active_ns = or_0(times.cpu_ns) + or_0(times.run_queue_ns)
    blocked_ns = np.maximum(fetch_ns - active_ns, 0).astype(np.float64)
    begin_ns, end_ns = times.fetch_start_ns, times.fetch_start_ns + fetch_ns
    blocked_share = blocked_ns / np.maximum(fetch_ns, 1)
    fetching, waiting = np.ones(len(times)), np.ones(len(times))
    ahead, previous_ns = np.zeros(len(times)), np.zeros(len(times))
    for row in range(len(times)):
        others = times.worker != times.worker[row]
        beside_ns = np.minimum(end_ns, end_ns[row]) - np.maximum(begin_ns, begin_ns[row])
        beside = np.where(others, beside_ns.clip(min=0), 0.0) / max(fetch_ns[row], 1)
        fetching[row] += beside.sum()
        waiting[row] += (beside * blocked_share).sum()
        ahead[row] = (others & (begin_ns < begin_ns[row]) & (end_ns > begin_ns[row])).sum()
        previous_end_ns = end_ns[others & (end_ns < end_ns[row])].max(initial=0)
        previous_ns[row] = max(previous_end_ns - begin_ns[row] - active_ns[row], 0)
    return np.stack([blocked_ns, active_ns, fetching, waiting, ahead, previous_ns])


def _times_as_long(server_share: float, in_flight: Series) -> Series:
    """How many times as long as alone a fetch waits with so many in flight, itself included."""
    counts = np.arange(1, math.ceil(in_flight.max()) + 1)
    longer, queued = [], 0.0
    for count in counts.tolist():
        at_server = server_share * (1 + queued)
        longer.append(1 - server_share + at_server)
        queued = count * at_server / longer[-1]
    return np.interp(in_flight, counts, longer)

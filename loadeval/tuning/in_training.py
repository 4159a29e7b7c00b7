"""Tunes the loader of a program while it trains: settings take turns within its epochs."""

from __future__ import annotations

import random
import sys
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loadeval.analysis.predict.tuning import MOST_IN_TURNS, WORKERS, Stop
from loadeval.errors import UsageError
from loadeval.probes import probes_named
from loadeval.runtime.alternation.fed import EPOCH_IS_OVER, EpochBrokenOff, EpochRun, FedRun
from loadeval.runtime.background.metrics_thread import Probes
from loadeval.runtime.feeding import Indices
from loadeval.runtime.registry import adapter_for
from loadeval.runtime.settings import DEFAULT_PROBE_INTERVAL_S
from loadeval.runtime.whole_epochs import WholeEpochs
from loadeval.tuning.forecasts import Room
from loadeval.tuning.loaders import LoaderMaker
from loadeval.tuning.trials import group_result
from loadeval.tuning.tuner import Tuner

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from loadeval.analysis.predict.tuning import TuningReport
    from loadeval.runtime.feeding import FedLoader, LoaderFeeding
    from loadeval.runtime.settings import EvaluatorSettings
    from loadeval.tuning.ranks import Decision, RankTurns
    from loadeval.tuning.trials import GroupResult
    from loadeval.tuning.tuner import Request

TOO_SHORT = "the training ended before its present settings were measured"
IN_ORDER = "in_order"
"""Not tuned: in turns each batch is served in the sampler's order."""


class TrainingTuner:
    """Serves the epochs of a training, tuning its loader meanwhile.

    Each batch is served once, in the sampler's order; with WholeEpochs each epoch is one that the
    loader would serve with the setting whose turn it is. Once the search has ended `report` is what
    it found, and the epoch goes on with the best settings; if it cannot end, `error` says why, and
    the epoch goes on with the present ones. `on_end` is called at either. `settings` are those of
    an alternating run: `pairs` is the number of rounds, and `batches` about how many real ones to
    measure of each setting.

    With `ranks` the settings take turns on all of them at the same batches, for they wait for each
    other at each step. Rank 0 measures, searches and reports; until what it decides begins, all
    have the present settings.
    """

    def __init__(
        self,
        loader: Any,
        settings: EvaluatorSettings,
        space: Mapping[str, list[Any]],
        max_trials: int,
        epoch_batches: int | None,
        on_end: Callable[[], object],
        ranks: RankTurns | None = None,
    ) -> None:
        self.report: TuningReport | None = None
        self.error: Exception | None = None
        self._chosen: Mapping[str, Any] | None = None
        self._ranks = ranks
        self._served = 0
        present = {WORKERS: adapter_for(loader).tunable(loader)[WORKERS]}
        self._maker = maker = LoaderMaker(loader, present)
        in_order = {IN_ORDER: [True]} if maker.accepts(IN_ORDER) else {}
        processes = 1 if ranks is None else ranks.ranks
        room = Room.free(MOST_IN_TURNS * processes)
        self._tuner = Tuner(maker, {**in_order, **space}, max_trials, room, processes, may_end=True)
        self._fence = adapter_for(loader).fence
        self._settings = settings
        self._epoch_batches = epoch_batches
        self._on_end = on_end
        self._persists = bool(maker.value("persistent_workers"))
        self._runs: dict[int, FedRun] = {}
        self._errors: dict[int, Exception] = {}
        self._requests = self._tuner.requests()
        self._request: Request | None = next(self._requests)
        self._feeding: LoaderFeeding | None = None
        self._indices = Indices(iter(()))
        self._batches = self._searching()
        self._rest: Rest | None = None
        self._under_way: object = None

    @property
    def is_over(self) -> bool:
        """Whether the search has ended."""
        return self._chosen is not None or self.error is not None

    @property
    def changes(self) -> dict[str, Any]:
        """The best settings, where they differ from the present ones."""
        return dict(self._chosen or {})

    def end(self) -> None:
        """The training ends before the search: report what was measured until now."""
        self._batches.close()
        self._close_loaders()
        search = getattr(self._tuner, "search", None)
        if search is None:
            self._give_up(UsageError(TOO_SHORT))
            return
        if self._runs and self._request is not None:  # of some rounds
            _next_of(self._requests, self._result(self._request)._replace(interrupted=True))
            search.stopped = Stop.TRAINING_ENDED
        search.stopped = search.stopped or Stop.TRAINING_ENDED
        self._found()

    def epoch(self, feeding: LoaderFeeding, indices: Iterator[Any]) -> Iterator[Any]:
        """The batches of `indices`: of an epoch that begins, or the rest of one.

        What the dataset and the sampler raise passes; iterate `after_error` then.
        """
        if self._under_way is not None:  # nobody has told that it was left
            self._leave(self._under_way, early=True)
        self._under_way = this = object()
        self._indices = own = Indices(indices)
        self._rest = None
        is_left, is_served = True, False
        try:
            self._feed_by(feeding)
            for batch in self._batches:
                if batch is EPOCH_IS_OVER:
                    is_served = True
                    break
                self._served += 1
                yield batch
                if self._under_way is not this:  # the program has begun another one
                    return
            is_left = False
        except Exception as error:  # noqa: BLE001 - training goes on
            is_left = False
            self._give_up(error)
            if self._ranks is not None:
                self._ranks.leave()
        finally:
            self._leave(this, early=is_left)
        if not is_served:
            self._rest = Rest(feeding.make(self.changes), own)
            yield from self._rest
        if own.error is not None:
            raise own.error

    def after_error(self) -> Iterator[Any]:
        """What is left of the epoch after its dataset has raised."""
        return iter(()) if self._rest is None else iter(self._rest)

    def _feed_by(self, feeding: LoaderFeeding) -> None:
        if feeding is self._feeding:
            return
        self._feeding = feeding
        for number, run in self._runs.items():  # the program has made another loader
            run.loader.close()
            assert self._request is not None  # noqa: S101 - these are its runs
            run.loader = feeding.make(self._request.group[number])

    def _searching(self) -> Generator[Any, None, None]:
        """The batches of all turns, with EPOCH_IS_OVER where an epoch of the program ends."""
        ranks = self._ranks
        while self._request is not None:
            result = yield from self._measure(self._request)
            if ranks is None or ranks.leads:
                self._request = _next_of(self._requests, result)
            if ranks is not None:
                if ranks.leads:
                    changes = self._changes_to(self._report()) if self._request is None else None
                    ranks.decide(self._request, changes, self._served)
                _, self._request, self._chosen = yield from self._until_decided(ranks)
        self._found()

    def _until_decided(self, ranks: RankTurns) -> Generator[Any, None, Decision]:
        """Batches with the present settings, until what rank 0 decides begins."""
        while True:
            assert self._feeding is not None  # noqa: S101 - an epoch is under way
            loader = self._feeding.make(self._maker.present)
            try:
                loader.open()
                loader.put(self._indices.take(loader.depth))
                while True:
                    self._fence()  # no rank's device is a step ahead of the others'
                    decision = ranks.decided(self._served)
                    if decision is not None:
                        return decision
                    loader.put(self._indices.take(1))
                    if not loader.unserved:
                        break
                    yield next(loader)
            except EpochBrokenOff:
                pass
            finally:
                self._indices.put_back(loader.unserved)
                loader.close()
            yield EPOCH_IS_OVER

    def _report(self) -> TuningReport:
        return self._tuner.report(self._settings.unit, step=True)

    def _changes_to(self, report: TuningReport) -> dict[str, Any]:
        best = report.best.settings
        return {name: value for name, value in best.items() if value != self._maker.value(name)}

    def _found(self) -> None:
        if self._ranks is None or self._ranks.leads:
            self.report = self._report()
            self._chosen = self._changes_to(self.report)
        self._on_end()

    def _measure(self, request: Request) -> Generator[Any, None, GroupResult]:
        settings = replace(
            self._settings, batches=round((self._settings.batches or 0) * request.part)
        )
        self._errors = {}
        comparison = uuid.uuid4().hex
        for number, chosen in enumerate(request.group):
            try:
                self._runs[number] = self._run_of(chosen, settings, comparison)
            except Exception as error:  # noqa: BLE001, PERF203 - the others go on
                self._errors[number] = error
        for turn in range(settings.pairs or 0):
            order = list(self._runs.values())
            random.Random(f"{settings.seed}/round {turn}").shuffle(order)  # noqa: S311 - no secret
            for run in order:
                if run.error is None:
                    yield from run.turn(turn, lambda: self._indices)
        self._close_loaders()
        return self._result(request)

    def _result(self, request: Request) -> GroupResult:
        runs, self._runs = self._runs, {}
        numbers = range(len(request.group))
        return group_result(
            [runs[number].run() if number in runs else None for number in numbers],
            [self._errors.get(number) or runs[number].error for number in numbers],
            request.by_sample,
            self._epoch_batches,
        )

    def _run_of(
        self, chosen: Mapping[str, Any], settings: EvaluatorSettings, comparison: str
    ) -> FedRun:
        assert self._feeding is not None  # noqa: S101 - an epoch is under way
        persists = bool(chosen.get("persistent_workers", self._persists))
        probes = probes_named(settings.probes, threads=settings.looks_inside)
        kind = EpochRun if isinstance(self._feeding, WholeEpochs) else FedRun
        return kind(
            self._feeding.make(chosen),
            persists,
            settings,
            comparison,
            Probes(probes, DEFAULT_PROBE_INTERVAL_S),
        )

    def _leave(self, epoch: object, *, early: bool) -> None:
        """The program asks for no more of this epoch."""
        if self._under_way is not epoch:  # it was left before
            return
        self._under_way = None
        if early and not sys.is_finalizing():
            self._indices = Indices(iter(()))
            with suppress(StopIteration, EpochBrokenOff):  # Ctrl-C may have ended it
                self._batches.throw(EpochBrokenOff())
        for run in self._runs.values():
            if not run.persists:
                run.loader.close()

    def _give_up(self, error: Exception) -> None:
        self.error = error
        for run in self._runs.values():
            self._indices.put_back(run.loader.unserved)
            run.close()
        self._close_loaders()
        self._on_end()

    def _close_loaders(self) -> None:
        for run in self._runs.values():
            run.loader.close()


class Rest:
    """The rest of an epoch from one loader, which is fed as it is read.

    It can be read further after its dataset has raised.
    """

    def __init__(self, loader: FedLoader, indices: Indices) -> None:
        self._loader = loader
        self._indices = indices
        loader.open()
        loader.put(indices.take(loader.depth))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._loader.put(self._indices.take(1))
        if not self._loader.unserved:
            self._loader.close()
            raise StopIteration
        try:
            return next(self._loader)
        except Exception:
            self._loader.unserved.popleft()
            raise


def _next_of(search: Generator[Request, GroupResult, None], result: GroupResult) -> Request | None:
    """What is to be measured after `result`; None where the search has ended."""
    try:
        return search.send(result)
    except StopIteration:
        return None

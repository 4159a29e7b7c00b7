"""Tunes the training loader of a program that nobody edited, within its epochs or by whole ones."""

from __future__ import annotations

import json
import os
import signal
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from loadeval.errors import UsageError, in_words
from loadeval.launch.loadeval_inject import failed
from loadeval.probes import NAMES
from loadeval.runtime.adapter import length_of
from loadeval.runtime.measurement import place_among_ranks
from loadeval.runtime.registry import adapter_for
from loadeval.runtime.serving.loop import restarting
from loadeval.runtime.settings import DEFAULT_CACHE_BYTES, EvaluatorSettings
from loadeval.runtime.whole_epochs import WholeEpochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loadeval.launch.settings import TuneOptions
    from loadeval.runtime.feeding import LoaderFeeding
    from loadeval.tuning.in_training import TrainingTuner
    from loadeval.tuning.ranks import RankTurns

    Iter = Callable[[Any], Iterator[Any]]

RESULT = "tuned.json"
"""The file with what was found, or why nothing was."""
STEPS_BEFORE = 3
"""Steps of an optimizer before settings take turns: the first ones are slow."""
WHICH_RANK = (
    "the training has {world_size} ranks, and it is not known which one this is; expected RANK "
    "beside WORLD_SIZE, as torchrun sets it, or torch.distributed"
)
RANKS_BY_EPOCHS = (
    "the dataset is iterable-style, so that settings could only take turns by whole epochs, and "
    "the ranks of a training do so only within epochs; tune the training of one rank"
)
MADE_ANEW = (
    "the dataset is iterable-style, so that settings take turns by whole epochs, and the program "
    "makes another loader for an epoch; expected one loader for all"
)
END = object()


class Trained(Protocol):
    """A loader that is measured, and how many steps optimizers have made on its batches."""

    optimizer_steps: int


class ProgramTuning:
    """Tunes the loader on whose batches an optimizer first makes steps; others are left alone.

    Epochs after the search are those of a loader with the best settings. What fails in here ends
    the tuning alone: training goes on with the program's own loader. Of several ranks the first one
    writes what was found.
    """

    def __init__(self, options: TuneOptions, folder: Path) -> None:
        self._options = options
        self._file = folder / RESULT
        self._ranks: RankTurns | None = None
        self._owner: Trained | None = None
        self._tuner: TrainingTuner | None = None
        self._loader: Any = None
        self._feeding: LoaderFeeding | None = None
        self._with_best: Any = None
        self._goes_on = True

    def epoch(self, measured: Trained, loader: Any, original: Iter) -> Iterator[Any]:
        """The batches of an epoch of `loader`; raises what the loader raises."""
        tuner = self._tuner
        if self._owner is None:
            return TunedEpoch(ServedEpoch(self, measured, loader, original(loader)))
        if tuner is None or measured is not self._owner:
            return original(loader)
        try:
            if tuner.is_over:
                loader = self._best_of(loader, tuner)
            else:
                feeding = self._feeding_of(loader)
                indices = feeding.indices(is_first=False)
                return TunedEpoch(ServedEpoch(self, measured, loader, None, indices))
        except Exception as error:  # noqa: BLE001 - the program goes on
            self._end(error)
        return original(loader)

    def begins(self, measured: Trained, loader: Any) -> bool:
        """Whether settings take turns from now on, in the epoch of `loader` that is under way.

        Where they have whole epochs they take turns from the next one on.
        """
        if self._owner is not None or measured.optimizer_steps < STEPS_BEFORE:
            return False
        self._owner = measured
        try:
            self._ranks = self._ranks_of(measured)
            self._tuner = self._tuner_of(loader)
        except Exception as error:  # noqa: BLE001 - the program goes on
            self._end(error)
        return self._tuner is not None and not isinstance(self._feeding, WholeEpochs)

    def take_over(self, loader: Any, own: Iterator[Any]) -> tuple[Iterator[Any], int]:
        """See LoaderFeeding."""
        return self._feeding_of(loader).take_over(own)

    def rest(self, loader: Any, indices: Iterator[Any] | None) -> Iterator[Any]:
        """The batches of `indices`, in turns; None is what is left after the dataset has raised."""
        assert self._tuner is not None  # noqa: S101 - it has begun
        if indices is None:
            return self._tuner.after_error()
        return self._tuner.epoch(self._feeding_of(loader), indices)

    def close(self) -> None:
        """The program ends: note what was found until now."""
        tuner = self._tuner
        if tuner is None or tuner.is_over:
            return
        self._goes_on = False
        try:
            tuner.end()
        except Exception as error:  # noqa: BLE001 - the program ends as it would
            self._end(error)

    def _tuner_of(self, loader: Any) -> TrainingTuner:
        from loadeval.tuning import FEWEST_ROUNDS, values_of  # noqa: PLC0415 - only who trains needs it
        from loadeval.tuning.in_training import TrainingTuner  # noqa: PLC0415 - who trains

        options = self._options
        space, rounds = values_of(options.space), options.rounds
        by_epochs = isinstance(self._feeding_of(loader), WholeEpochs)
        if by_epochs:
            if self._ranks is not None:
                raise UsageError(RANKS_BY_EPOCHS)
            space = {"persistent_workers": [False], **space}
            rounds = FEWEST_ROUNDS
        settings = EvaluatorSettings(
            mode="alternate",
            samples=None,
            unit="samples",
            max_cache_bytes=DEFAULT_CACHE_BYTES,
            overwrite=False,
            pairs=rounds,
            batches=options.batches,
            seed=0,
            clock=perf_counter_ns,
            probes=NAMES,
            stages=True,
        )
        return TrainingTuner(
            loader,
            settings,
            space,
            options.trials,
            None if by_epochs else length_of(loader),  # a stream may not know its own
            self._ended,
            self._ranks,
        )

    def _ranks_of(self, measured: Trained) -> RankTurns | None:
        """The ranks that take turns with this one; None if it trains alone. Raises UsageError."""
        from loadeval.tuning.ranks import RankTurns  # noqa: PLC0415 - only who trains needs it

        place = place_among_ranks()
        if not place:
            return None
        if "rank" not in place:
            raise UsageError(WHICH_RANK.format_map(place))
        folder, rank, ranks = self._file.parent, place["rank"], place["world_size"]
        return RankTurns(folder, rank, ranks, lambda: measured.optimizer_steps)

    def _feeding_of(self, loader: Any) -> LoaderFeeding:
        """What feeds loaders like `loader`. Raises UsageError where nothing can."""
        if self._feeding is None or loader is not self._loader:
            if isinstance(self._feeding, WholeEpochs):
                raise UsageError(MADE_ANEW)
            feeding = adapter_for(loader).feeding(loader)
            self._feeding = WholeEpochs(loader) if feeding is None else feeding
            self._loader = loader
        return self._feeding

    def _best_of(self, loader: Any, tuner: TrainingTuner) -> Any:
        """`loader` with the best settings."""
        if not tuner.changes:
            return loader
        if self._with_best is None or loader is not self._loader:
            self._with_best = adapter_for(loader).reconfigured(loader, tuner.changes)
            self._loader = loader
        return self._with_best

    def _end(self, error: Exception) -> None:
        """Tune no more, for what failed here."""
        self._tuner = None
        if self._ranks is not None:
            self._ranks.leave()
        self._write({"why_not": in_words(error)})

    def _ended(self) -> None:
        """The search has ended."""
        tuner = self._tuner
        assert tuner is not None  # noqa: S101 - it calls this
        try:
            self._write(self._found(tuner))
        except Exception as error:  # noqa: BLE001 - the program goes on
            failed(error)
        if self._options.stops and self._goes_on and tuner.error is None:
            os.kill(os.getpid(), signal.SIGINT)

    def _found(self, tuner: TrainingTuner) -> dict[str, Any]:
        if tuner.report is None:
            return {"why_not": "" if tuner.error is None else in_words(tuner.error)}
        from loadeval.report.terminal.tuning import tuning_lines  # noqa: PLC0415 - training needs no report
        from loadeval.report.tuning import plain, tuning_as_dict  # noqa: PLC0415 - no report

        loader = self._loader
        return {
            "tuning": tuning_as_dict(tuner.report),
            "lines": tuning_lines(tuner.report, self._options.width),
            "changes": plain(tuner.changes),
            "made_at": adapter_for(loader).describe(loader).made_at,
        }

    def _write(self, result: dict[str, Any]) -> None:
        if self._ranks is not None and not self._ranks.leads:
            return
        try:
            self._file.write_text(json.dumps(result), encoding="utf-8")
        except OSError as error:
            failed(error)


class TunedEpoch:
    """An epoch of the program, as an iterator: it has the loader's length.

    It goes on after an exception of the dataset, as a DataLoader's iterator does. Nothing refers to
    it, so that it ends when the program drops it.
    """

    def __init__(self, served: ServedEpoch) -> None:
        self._served = served
        self._batches = restarting(served.batches)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def __len__(self) -> int:
        return len(self._served.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_served"].own, name)


class ServedEpoch:
    """An epoch of `loader`, in which settings take turns once an optimizer makes steps on it.

    `own` are the program's own batches; None if its loader is being tuned already, and then
    `indices` are what its sampler chooses.
    """

    def __init__(
        self,
        tuning: ProgramTuning,
        measured: Trained,
        loader: Any,
        own: Iterator[Any] | None,
        indices: Iterator[Any] | None = None,
    ) -> None:
        self.loader = loader
        self.own = own
        self._tuning = tuning
        self._measured = measured
        self._indices = indices
        self._pending = 0

    def batches(self) -> Iterator[Any]:
        """The batches; called again after an exception, those that are left."""
        own = self.own
        if own is not None:
            yield from self._own_batches(own)
            if self._indices is None:
                return
            adapter_for(self.loader).release(self.loader, own)
            self.own = None
        indices, self._indices = self._indices, None
        yield from self._tuning.rest(self.loader, indices)

    def _own_batches(self, own: Iterator[Any]) -> Iterator[Any]:
        """The program's own batches, until settings take turns."""
        while self._indices is None:
            if self._tuning.begins(self._measured, self.loader):
                self._indices, self._pending = self._tuning.take_over(self.loader, own)
                break
            batch = next(own, END)
            if batch is END:
                return
            yield batch
        while self._pending:
            self._pending -= 1
            yield next(own)

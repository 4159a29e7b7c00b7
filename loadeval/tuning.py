"""Which settings of its loader make a training fastest: predicted first, then measured in turns."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, count, islice, product, repeat
from operator import truediv
from pathlib import Path
from statistics import fmean
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np

from loadeval.data.folder import logs_so_far
from loadeval.data.lines import Mode
from loadeval.data.log import read_run
from loadeval.data.run import SECOND_NS, Run, head_for
from loadeval.errors import LoadevalError, UsageError, in_words
from loadeval.estimate.stats import Estimate, student
from loadeval.estimate.steady import closed_steps, ends_ns
from loadeval.evaluator import LoaderEvaluator
from loadeval.launch.command import ServedBatches, remove_marks, run, why_nothing
from loadeval.launch.settings import RunSettings
from loadeval.model.costs import Change
from loadeval.model.model import NOTHING_GAINED, Model, cheapest
from loadeval.report.blocks import Cell, Number, Section, Table, Text
from loadeval.report.text import lines
from loadeval.report.whatif import memory

SPACE = {"prefetch_factor": (2, 4), "num_workers": (0, 1, 2, 3, 4, 6, 8, 12, 16, 32)}
"""What is predicted where nobody says what to choose from."""
NEED_WORKERS = "prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"
"""PyTorch's DataLoader refuses them without workers."""
PREDICTABLE = {"num_workers", "prefetch_factor", "persistent_workers", "in_order", "batch_size"}
MOST_MEASURED = 4
WORTH = 1.03
"""Settings that are faster by less are as good as the cheaper ones."""
LOOKS = 3
"""The look inside the loader has so many times the batches of a block."""
FEWEST_BATCHES, LOOKS_MORE = 80, 10
"""A run of a program ends when it has served so many batches, more than 32 workers load ahead, and
was looked at so many times more: some 5 s."""
BRACKETS = (
    "Speed-ups are over the present settings, measured in turns. Brackets: 95% CI of what was "
    "measured, expected range of what was predicted."
)
Options: TypeAlias = Mapping[str, Any]
"""Settings of a loader, by their names."""
Space: TypeAlias = Mapping[str, Iterable[Any]]
"""The values of each setting to choose from, the cheapest first."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried: their `changes` to the present ones, which have none themselves.

    `throughput` is per second, the mean over the turns. `speedup` is that over the present
    settings', with its 95% CI, and `predicted` the same with its expected range. None is not known;
    `error` is what failed.
    """

    changes: Options
    predicted: Estimate | None = None
    throughput: float | None = None
    speedup: Estimate | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Tuning:
    """The settings that were tried, the present ones first, and the `best` of them to pass.

    `chosen` is the cheapest of the fastest, of those shown to be faster, and else the present ones;
    `arguments` are its changes under the names that they have where the loader is made, in the line
    `made_at` if a program makes it, FILE:LINE. `present` are the values that the tried settings
    have now, as far as they are known.
    """

    trials: Sequence[Trial]
    chosen: Trial
    best: Options
    arguments: Options
    present: Options
    unit: str
    made_at: str | None
    notes: Sequence[str]

    def sections(self) -> list[Section]:
        """What was chosen, a table of what was tried, and what to change where."""
        now = as_code(self.present) or "what is set"
        headline, change = f"Keep {now}: no other settings were shown to be 3% faster.", ""
        if what := as_code(self.chosen.changes):
            headline = f"Training is {self.chosen.speedup:times} as fast with {what} as with {now}."
            where = f"where the loader is made{f', {self.made_at}' if self.made_at else ''}"
            change = f"Change {where}: {as_code(self.arguments)}"
        rows: list[list[Cell]] = [
            [
                as_code(each.changes) or f"{now} (present)",
                Number(each.throughput, "number"),
                *(f"{gain:times}" if gain else "" for gain in (each.speedup, each.predicted)),
            ]
            for each in self.trials
        ]
        table = Table([f"{self.unit}/s", "measured", "speed-up", "predicted"], rows)
        told = [Section("", [Text(text)]) for text in (*self.notes, BRACKETS, change) if text]
        return [Section(headline), Section("", [table]), *told]

    def __str__(self) -> str:
        return "\n".join(line.plain for line in lines(self.sections()))


def as_code(settings: Options) -> str:
    """Settings as arguments in a line of code."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def tune(
    make_loader: Callable[..., Any],
    step: Callable[[Any], object],
    *,
    settings: Mapping[str, Any] | None = None,
    space: Mapping[str, Iterable[Any]] | None = None,
    batches: int = 80,
    rounds: int = 3,
    clock: Callable[[], int] = perf_counter_ns,
) -> Tuning:
    """Find the settings of a loader with which training is fastest.

    An alternating run with the present settings tells what happens inside the loader. Those with
    the highest predicted throughput, four at most, are then measured beside the present ones: a
    block of batches of each in turn, forth and back. A block takes as many epochs as it needs. The
    batches that fill the loader's queue do not count, the starts of further epochs do. Only
    settings that are faster by 3%, with the whole interval of their speed-up above 1.0, are chosen.

    Args:
        make_loader: returns a loader with the settings that it gets by keyword, as
            `lambda **settings: DataLoader(dataset, **settings)` does.
        step: the training step, called with each batch.
        settings: the present settings.
        space: values to choose from, the cheapest first: {"num_workers": [2, 4, 8]}. By default
            `num_workers` and `prefetch_factor` are tried.
        batches: how many batches of each setting count in a block.
        rounds: how often the blocks go forth and back.
        clock: a clock in nanoseconds, for tests.

    Settings with which the loader or the step fails are reported with the error; what it raises
    with the present ones is raised. After Ctrl-C what is known is returned. Raises UsageError for
    an argument that is not valid, and where it is not known what to try.
    """
    if batches < 1 or rounds < 1:
        raise UsageError(f"batches is {batches} and rounds {rounds}; expected 1 or more of each")

    def measure(changes: Options, mode: Mode, times: int) -> list[Run]:
        gc.collect()  # workers that are left in a cycle would run on beside this block's
        loader = make_loader(**_merged(settings or {}, changes))
        most = times * batches if mode == "alternate" else None  # so that it has enough blocks
        with LoaderEvaluator(loader, mode, batches=most, clock=clock) as evaluator:
            fence = evaluator._measurement.adapter.fence  # noqa: SLF001 - another one would call a callable
            head = head_for(evaluator.recorded().loader.prefetch_depth or 0)
            last = times * (head + batches)
            epochs = repeat(evaluator, last)  # of a batch each, at least
            for number, batch in enumerate(islice(chain.from_iterable(epochs), last + 1), 1):
                step(batch)
                if number in {head, last}:  # what a device still does is of the batches so far
                    fence()
        return [evaluator.recorded()]

    return _tuned(measure, settings or {}, space or SPACE, rounds)


def tune_command(
    command: Sequence[str],
    settings: RunSettings,
    logs: Path,
    space: Space,
    stop_after: int | None,
    say: Callable[[str], object],
) -> Tuning:
    """Find the settings with which an unedited program trains fastest, as `tune` does.

    All runs have `settings`. Each is ended after `stop_after` batches, by default after some
    seconds; its logs and what it prints go to a numbered folder in `logs`. `say` is told which run
    begins. Raises LoadevalError where the program cannot be measured with its
    present settings, and KeyboardInterrupt where Ctrl-C ends it before anything is known.
    """
    numbers = count(1)

    def measure(changes: Options, mode: Mode, times: int) -> list[Run]:
        number = f"{next(numbers):02}"
        say(f"loadeval: run {number}, {as_code(changes) or 'present settings'}")
        folder = logs / number
        folder.mkdir()
        most = stop_after or (times * FEWEST_BATCHES if mode == "alternate" else None)
        own = replace(
            settings,
            options={"mode": mode, "batches": most},
            settings=_merged(settings.settings, changes),
        )
        served = ServedBatches(folder, stop_after or times * FEWEST_BATCHES)
        more = iter(range(0 if stop_after else LOOKS_MORE))
        with (folder / "output.txt").open("wb") as output:
            ended = run(
                command,
                own,
                folder,
                lambda recorded: served(recorded) and next(more, None) is None,
                output=output,
            )
        if ended.was_interrupted:
            raise KeyboardInterrupt
        runs = [read_run(log) for log in logs_so_far(folder)]
        if runs and (ended.was_stopped or not ended.code):
            remove_marks(folder)
            return runs
        why = f"return code {ended.code}" if runs else why_nothing(folder, ended.code)
        raise LoadevalError(f"{why}. See {number}/output.txt")

    return _tuned(measure, settings.settings, space or SPACE, rounds=2)


def _merged(settings: Options, changes: Options) -> Options:
    """The settings with changes, without those that need workers where there are none."""
    merged = {**settings, **changes}
    for name in NEED_WORKERS if merged.get("num_workers") == 0 else ():
        merged.pop(name, None)
    return merged


def _tuned(
    measure: Callable[[Options, Mode, int], Sequence[Run]],
    settings: Options,
    space: Space,
    rounds: int,
) -> Tuning:
    """Predict from an alternating run, measure what is promising in turns, and choose by that.

    `measure` trains for a short while, or so many times as long, with changed settings, and returns
    what each rank recorded.
    """
    look, *_ = measure({}, "alternate", LOOKS)
    info, notes = look.loader, list[str]()
    known = {
        **asdict(info),
        "num_workers": info.workers,
        "prefetch_factor": (info.prefetch_depth or 2) // (info.workers or 1),  # 2 is the default
        "pin_memory": info.pinned,
        **settings,
    }
    unit = look.header.unit if (look.steps.samples > 0).all() else "batches"
    if "batch_size" in space and unit == "batches":
        raise UsageError(
            "the samples of a batch are not known, and without them batches of other sizes cannot "
            "be compared; leave batch_size out"
        )
    trials = _promising(look, known, space, notes)
    rates = defaultdict[int, list[float]](list)
    forth = [*range(len(trials))]
    try:
        for at in (forth + forth[::-1]) * rounds if trials[1:] else ():
            trial = trials[at]
            if trial.error:
                continue
            try:
                runs = measure(trial.changes, "log", 1)
                rates[at].append(sum(_throughput(run, unit) for run in runs))
            except Exception as error:
                if not at:
                    raise
                trials[at] = replace(trial, error=in_words(error))
                rates.pop(at, None)
                notes.append(f"With {as_code(trial.changes)} it failed: {trials[at].error}")
    except KeyboardInterrupt:
        if not rates[0][1:]:  # a single turn has no interval
            raise
        notes.append("Ended early, by Ctrl-C or another signal.")
    gains = [NOTHING_GAINED] * len(trials)
    for at, each in rates.items():
        gain = _speedup(each, rates[0])
        trials[at] = replace(trials[at], throughput=fmean(each), speedup=gain if at else None)
        if gain.bounds[0] > 1:
            gains[at] = gain
    chosen, names, present = (
        trials[cheapest(gains, 1 / WORTH)],
        info.setting_names or {},
        _merged(known, {}),
    )
    return Tuning(
        trials=trials,
        chosen=chosen,
        best=_merged(settings, chosen.changes),
        arguments={names.get(name, name): value for name, value in chosen.changes.items()},
        present={name: present[name] for name in space if present.get(name) is not None},
        unit=unit,
        made_at=info.made_at,
        notes=notes,
    )


def _promising(look: Run, known: Options, space: Space, notes: list[str]) -> list[Trial]:
    """The present settings, and those worth measuring; `notes` get what is to be said of others.

    Of more than MOST_MEASURED they are the cheapest of the best by prediction, and its neighbours
    whose range reaches it.
    """
    model = None
    try:
        model = Model.of(look)
    except UsageError as error:
        notes.append(f"Nothing was predicted: {error}.")
    trials = {"": Trial({})}
    for values in product(*space.values()):
        wanted = _merged(known, dict(zip(space, values, strict=True))).items()
        changes = {name: each for name, each in wanted if name in space and each != known.get(name)}
        gain = None
        if model and changes.keys() <= PREDICTABLE:
            if memory(model, Change(changes))[2]:
                continue
            gain = model.simulate(Change(changes))
        trials.setdefault(as_code(changes), Trial(changes, gain))
    every = [*trials.values()]
    if len(every) <= MOST_MEASURED + 1:
        return every
    if not all(each.predicted for each in every[1:]):
        raise UsageError(
            f"{len(every) - 1} settings are too many to measure without a prediction; expected "
            f"{MOST_MEASURED} at most, such as --space num_workers=2,4. {' '.join(notes)}"
        )
    gains = [each.predicted or NOTHING_GAINED for each in every]
    best = cheapest(gains, 1 / WORTH)
    if not best:
        notes.append("No other settings are predicted to be 3% faster.")
        return every[:1]
    near = [at for at, gain in enumerate(gains) if gain.bounds[1] >= gains[best].value]
    near.sort(key=lambda at: abs(at - best))
    return [every[at] for at in (0, *sorted(near[:MOST_MEASURED]))]


def _throughput(run: Run, unit: str) -> float:
    """Samples or batches a second, of training alone, from when the loader's queue is refilled."""
    counted = np.flatnonzero(closed_steps(run))[head_for(run.loader.prefetch_depth or 0) :]
    steps = run.steps.take(counted)
    if not len(steps):
        raise LoadevalError(
            "it served no more batches than are loaded ahead; expected more: raise --stop-after or "
            "batches="
        )
    amount = len(steps) if unit == "batches" else steps.samples.sum()
    taken_ns = (steps.wait_ns + steps.step_ns).sum() + sum(ns or 0 for ns in ends_ns(run).values())
    return float(SECOND_NS * amount / taken_ns)


def _speedup(rates: Sequence[float], present: Sequence[float]) -> Estimate:
    """The mean of the turns' speed-ups, and its interval by Student's t; of logarithms, both."""
    logs = np.log([*map(truediv, rates, present)])  # an interrupted turn is in one of them
    freedom = len(logs) - 1
    half = student(freedom) * logs.std() / np.sqrt(freedom)
    return Estimate(*np.exp(logs.mean() + np.array([0, -half, half])).tolist())

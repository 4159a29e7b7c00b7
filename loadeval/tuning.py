"""Which settings of a loader train fastest: predicted from one run, and then measured in turns.

`tune` measures blocks of batches in this process, `tune_command` runs of a program that nobody
edited: A B C ... C B A, so that a machine that becomes slower or faster does so for all of them.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, count, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.analysis.estimate.intervals import MeanError, ratio_interval
from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.estimate.steady import closed_steps
from loadeval.analysis.predict.whatif import LoaderModel
from loadeval.data.log import read_run
from loadeval.data.run import ARMS, SECOND_NS
from loadeval.errors import LoadevalError, UsageError, in_words
from loadeval.evaluator import LoaderEvaluator
from loadeval.launch.command import remove_marks, run, why_nothing
from loadeval.launch.folder import trainings_in
from loadeval.report.formatting import estimated, number, settings_as_code, speedup
from loadeval.report.tables import NO_LIMIT, Table, wrapped
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loadeval.data.lines import Mode
    from loadeval.data.run import Run
    from loadeval.launch.settings import RunSettings

    Changes = dict[str, Any]
    Space = Mapping[str, Iterable[Any]]
    Measure = Callable[[Changes, bool], float]
    Say = Callable[[str], object]
    Likely = tuple[Changes, Estimate | None]

MOST = 4
"""Settings that are measured beside the present ones, at most."""
LEVEL = 0.03
"""Settings whose throughputs differ by a smaller share are as fast; the cheaper ones are chosen."""
DEFAULTS = {"prefetch_factor": (2, 4), "num_workers": (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)}
"""What is predicted where no space is given, the cheapest last setting first."""
PREDICTED = {"num_workers", "prefetch_factor", "in_order", "batch_size"}
"""Settings that the model distinguishes."""
NEED_WORKERS = {"prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"}
"""Settings that no loader without workers takes."""
FIRST_BATCHES, FEWEST_BATCHES, RUN_S = 200, 60, 5
"""The batches of a program's first run, and those and the seconds of later ones, at least."""
NOTES = (
    "Speed-ups are over the present settings, measured in turns. Brackets: 95% CI of what was "
    "measured, expected range of what was predicted, which is without the starts of epochs."
)


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried: their `changes` to the present ones, which have none themselves.

    `throughput` is per second, the mean over the turns. `speedup` is that over the present
    settings', with its 95% CI, and `predicted` the same with its expected range. None is not known;
    `error` is what failed.
    """

    changes: Mapping[str, Any]
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

    trials: tuple[Trial, ...]
    chosen: Trial
    best: Mapping[str, Any]
    arguments: Mapping[str, Any]
    present: Mapping[str, Any]
    unit: str
    made_at: str | None
    notes: tuple[str, ...]

    def lines(self, width: int) -> list[str]:
        """A table and what to change, in lines that a terminal of this width shows whole."""
        present, code = (settings_as_code(each) for each in (self.present, self.chosen.changes))
        head = f"Nothing was shown to be faster: the present settings stay. {present}".rstrip()
        texts = [*self.notes, NOTES]
        if code:
            times = estimated(self.chosen.speedup, speedup)
            head = f"Training is {times} as fast with {code} as with {present or 'the present'}"
            place = f", {self.made_at}" if self.made_at else ""
            code = settings_as_code(self.arguments)
            texts.append(f"Change where the loader is made{place}: {code}")
        rows = [
            (
                settings_as_code(trial.changes) or f"{present} (present)".strip(),
                "" if trial.throughput is None else number(trial.throughput),
                "" if trial.speedup is None else estimated(trial.speedup, speedup),
                "" if trial.predicted is None else estimated(trial.predicted, speedup),
            )
            for trial in self.trials
        ]
        table = Table("", (f"{self.unit}/s", "measured", "speed-up", "predicted"), rows)
        blocks = [
            wrapped(head, width),
            table.lines(width),
            *(wrapped(each, width) for each in texts),
        ]
        return [line for block in blocks for line in (*block, "")][:-1]

    def __str__(self) -> str:
        return "\n".join(self.lines(NO_LIMIT))


def tune(
    make_loader: Callable[..., Any],
    step: Callable[[Any], object],
    *,
    settings: Mapping[str, Any] | None = None,
    space: Mapping[str, Iterable[Any]] | None = None,
    batches: int = 80,
    rounds: int = 3,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Tuning:
    """Find the settings of a loader with which training is fastest.

    An alternating run with the present settings tells what happens inside the loader. Those with
    the highest predicted throughput, four at most, are then measured beside the present ones: a
    block of batches of each in turn, forth and back. A block takes as many epochs as it needs. The
    batches that fill the loader's queue do not count, the starts of further epochs do. Only
    settings whose speed-up has its whole interval above 1.0 are chosen.

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
    given, parameters = dict(settings or {}), inspect.signature(make_loader).parameters
    if space is None:
        takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        space = {name: DEFAULTS[name] for name in DEFAULTS if takes_all or name in parameters}

    def measure(changes: Changes, by_sample: bool) -> float:
        """Samples or batches per second of a block."""
        loader = make_loader(**_merged(given, changes))
        adapter, epochs = adapter_for(loader), list[Any]()
        left_out = (adapter.describe(loader).prefetch_depth or 0) + 1

        def opened() -> Iterator[Any]:
            epochs[:] = [adapter.epoch(loader)]
            return iter(epochs[0])

        try:
            served = chain.from_iterable(opened() for _ in range(left_out + batches))
            for batch in islice(served, left_out):
                step(batch)
            adapter.fence()
            began_ns, amount = clock(), 0
            for batch in islice(served, batches):
                amount += (adapter.samples(batch) or 0) if by_sample else 1
                step(batch)
            adapter.fence()
            if not amount:
                raise UsageError("the loader served no batches; expected some in each epoch")
            return amount * SECOND_NS / (clock() - began_ns)
        finally:
            for epoch in epochs:
                adapter.release(loader, epoch)

    total, loader = 3 * batches, make_loader(**given)
    with LoaderEvaluator(loader, "alternate", batches=total, clock=clock) as evaluator:
        epochs = (iter(evaluator) for _ in range(total))
        for batch in islice(chain.from_iterable(epochs), total):
            step(batch)
        first = evaluator.recorded()
    del loader, evaluator, epochs  # and with them the workers
    return _tuned(first, given, space, measure, rounds)


def tune_command(
    command: Sequence[str], settings: RunSettings, space: Space, stop_after: int | None, say: Say
) -> Tuning:
    """Run `command` for a short while with each setting: logs and output go to `settings.folder`.

    `settings` are those of all runs. A run ends after `stop_after` batches of the training loader,
    by default after about RUN_S seconds. Raises LoadevalError where the first run measured nothing.
    """
    numbers = count(1)

    def runs(changes: Changes, batches: int, mode: Mode = "log") -> list[Run]:
        folder = Path(settings.folder) / f"{next(numbers):02}"
        folder.mkdir()
        say(f"loadeval: run {folder.name}, {settings_as_code(changes) or 'present settings'}")
        most = batches if mode == "alternate" else None
        merged = _merged(settings.settings, changes)
        of_run = replace(settings, folder=str(folder), mode=mode, batches=most, settings=merged)
        with (folder / "output.txt").open("wb") as output:
            ended = run(command, of_run, batches, output=output)
        if ended.was_interrupted:
            raise KeyboardInterrupt
        code, trainings = 0 if ended.was_stopped else ended.code, trainings_in(folder)
        if code or not trainings:
            why = f"exit code {code}" if trainings else why_nothing(folder, code)
            raise LoadevalError(f"{why}. See {folder.name}/output.txt")
        remove_marks(folder)
        return [read_run(log) for log in trainings[0]]

    first = runs({}, stop_after or FIRST_BATCHES, "alternate")[0]
    in_time = math.ceil(RUN_S * _throughput([first], by_sample=False))
    wanted = stop_after or max(in_time, FEWEST_BATCHES)
    present = first.header.loader.workers

    def measure(changes: Changes, by_sample: bool) -> float:
        depth = (changes.get("num_workers", present) or 0) * (changes.get("prefetch_factor") or 2)
        return _throughput(runs(changes, wanted + depth), by_sample)

    return _tuned(first, dict(settings.settings), space, measure, rounds=2)


def _tuned(first: Run, given: Changes, space: Space, measure: Measure, rounds: int) -> Tuning:
    """Choose what to try by the `first` run, measure it in turns, and tell what came of it."""
    loader, by_sample = first.header.loader, bool((first.steps.samples > 0).all())
    if "batch_size" in space and not by_sample:
        raise UsageError("the samples of a batch are not known; leave batch_size out of the space")
    depth, workers = loader.prefetch_depth or 0, loader.workers
    present = {
        "num_workers": workers,
        "prefetch_factor": depth // workers if workers else None,
        "in_order": loader.in_order,
        "batch_size": loader.batch_size,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": loader.pinned,
        **given,
    }
    notes: list[str] = []
    tried = _likeliest(first, present, space, notes)
    changes = [{}, *(change for change, _ in tried)]
    rates, errors = _in_turns(changes, lambda each: measure(each, by_sample), rounds, notes)
    varied = {name for change in changes for name in change} or set(space)
    trials = [Trial({}, throughput=float(np.mean(rates[0])) if rates[0] else None)]
    faster: dict[float, Trial] = {}
    for place, (change, predicted) in enumerate(tried, 1):
        trial = Trial(change, predicted, error=errors.get(place))
        logs = np.log([one / other for one, other in zip(rates[place], rates[0], strict=False)])
        if trial.error is not None:
            notes.append(f"With {settings_as_code(change)} it failed: {trial.error}")
        elif len(logs) > 1:
            error = MeanError(float(logs.var(ddof=1)) / len(logs), len(logs) - 1)
            ratio = ratio_interval(math.exp(logs.mean()), error)
            trial = replace(trial, throughput=float(np.mean(rates[place])), speedup=ratio)
            if (ratio.low or 0.0) > 1.0:
                faster.setdefault(ratio.value, trial)
        trials.append(trial)
    level = (trial for value, trial in faster.items() if value * (1 + LEVEL) > max(faster))
    chosen, names = next(level, trials[0]), loader.setting_names or {}
    return Tuning(
        trials=tuple(trials),
        chosen=chosen,
        best=_merged(given, chosen.changes),
        arguments={names.get(name, name): value for name, value in chosen.changes.items()},
        present={name: present[name] for name in space if name in varied and name in present},
        unit=first.header.unit if by_sample else "batches",
        made_at=loader.made_at,
        notes=tuple(notes),
    )


def _in_turns(
    changes: Sequence[Changes], measure: Callable[[Changes], float], rounds: int, notes: list[str]
) -> tuple[list[list[float]], dict[int, str]]:
    """The throughputs of each, turn by turn, A B C ... C B A; and the errors of those that failed.

    What the first ones raise, the present settings, is raised.
    """
    rates: list[list[float]] = [[] for _ in changes]
    errors: dict[int, str] = {}
    order = list(range(len(changes)))
    for place in (order + order[::-1]) * rounds:
        if place in errors or len(errors) == len(changes) - 1:
            continue
        try:
            rates[place].append(measure(changes[place]))
        except KeyboardInterrupt:
            if len(rates[0]) <= 1:  # which gives no interval
                raise
            notes.append("Ended early by Ctrl-C.")
            break
        except Exception as error:
            if not place:
                raise
            errors[place] = in_words(error)
    return rates, errors


def _likeliest(first: Run, present: Changes, space: Space, notes: list[str]) -> list[Likely]:
    """What to measure, in the order of the space, each with its predicted speed-up.

    Without what the machine has no memory for. If there are more than MOST: the cheapest with about
    the highest prediction, and its neighbours whose range reaches that.
    """
    model = None
    try:
        model = LoaderModel.of(first)
    except UsageError as error:
        notes.append(f"Nothing was predicted: {error}.")
    points: list[Likely] = []
    for choices in product(*space.values()):
        point = dict(zip(space, choices, strict=True))
        if point.get("num_workers", present["num_workers"]) == 0:
            point = {name: point[name] for name in point if name not in NEED_WORKERS}
        changes = {name: value for name, value in point.items() if value != present.get(name)}
        if not changes or any(changes == other for other, _ in points):
            continue
        predicted = None
        if model is not None and changes.keys() <= PREDICTED:
            prediction = model.predict(**changes)
            if prediction.shortages:
                continue
            predicted = Estimate(**asdict(prediction.speedup))
        points.append((changes, predicted))
    if len(points) <= MOST:
        return points
    values_of = [predicted.value for _, predicted in points if predicted is not None]
    if len(values_of) < len(points):
        raise UsageError(
            f"{' '.join(notes)} Without a prediction, {len(points)} settings are too many to "
            f"measure; expected {MOST} at most in --space or space=, such as num_workers=2,4,8"
        )
    highest = max(values_of)
    if highest < 1 + LEVEL:
        notes.append(f"No other settings are predicted to be {LEVEL:.0%} faster.")
        return []
    reach = [
        (of.value * (1 + LEVEL) > highest, point)
        for point in points
        if (of := point[1]) is not None and of.high is not None and of.high >= highest
    ]
    best = [is_best for is_best, _ in reach].index(True)
    return [point for _, point in reach[max(best - 1, 0) :][:MOST]]


def _throughput(runs: Iterable[Run], by_sample: bool) -> float:
    """Samples or batches per second of all ranks, with the starts of all epochs but the first."""
    total = 0.0
    for each in runs:
        steps = each.steps
        counted = (steps.epoch > steps.epoch[:1]) | (steps.batch >= each.header.warmup)
        counted &= closed_steps(each) & (steps.arm == ARMS.index("real"))
        taken_ns = int((steps.wait_ns + steps.step_ns)[counted].sum())
        taken_ns += sum(end.wait_ns or 0 for end in each.ends)
        if not counted.any():
            raise LoadevalError("The run was too short; expected more batches than are prefetched")
        amount = steps.samples[counted].sum() if by_sample else counted.sum()
        total += int(amount) * SECOND_NS / taken_ns
    return total


def _merged(given: Mapping[str, Any], changes: Mapping[str, Any]) -> Changes:
    """Both together, without what a loader without workers does not take."""
    merged = {**given, **changes}
    if changes.get("num_workers") == 0:
        merged = {name: value for name, value in merged.items() if name not in NEED_WORKERS}
    return merged

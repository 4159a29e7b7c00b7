"""Which settings of a loader train fastest: predicted from one run, and then measured in turns.

`tune` measures blocks of batches in this process, `tune_command` runs of a program that nobody
edited: A B C ... C B A, so that a machine that becomes slower or faster does so for all of them.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from loadeval.backends import Backend, BackendAdapter
from loadeval.core.rounds import in_rounds
from loadeval.data.lines import Mode
from loadeval.data.log import read_run
from loadeval.data.run import ARMS, SECOND_NS, Run
from loadeval.errors import LoadevalError, UsageError, in_words
from loadeval.estimate.stats import Estimate, student
from loadeval.estimate.steady import closed_steps
from loadeval.evaluator import Measurement
from loadeval.launch.command import remove_marks, run, why_nothing
from loadeval.launch.folder import trainings_in
from loadeval.launch.settings import RunSettings
from loadeval.model.changes import asked_for
from loadeval.model.model import Model
from loadeval.model.whatif import memory_bytes, shortages
from loadeval.probes import NAMES
from loadeval.report.blocks import Block, Cell, Number, Section, Table, Text
from loadeval.report.text import lines
from loadeval.settings import Settings

Changes: TypeAlias = dict[str, Any]
Space: TypeAlias = Mapping[str, Iterable[Any]]

MOST = 4
"""Settings that are measured beside the present ones, at most."""
LEVEL = 0.03
"""Settings whose throughputs differ by a smaller share are as fast; the cheaper ones are chosen."""
DEFAULTS = {"prefetch_factor": (2, 4), "num_workers": (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)}
"""What is predicted where no space is given, the cheapest last setting first."""
PREDICTED = {"num_workers", "prefetch_factor", "in_order", "batch_size", "persistent_workers"}
"""Settings that the model distinguishes."""
NEED_WORKERS = {"prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"}
"""Settings that no loader without workers takes."""
FIRST_BATCHES, FEWEST_BATCHES, RUN_S = 200, 60, 5
"""The batches of a program's first run, and those and the seconds of later ones, at least."""
BRACKETS = (
    "Speed-ups are over the present settings, measured in turns. Brackets: 95% CI of what was "
    "measured, expected range of what was predicted."
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

    def sections(self) -> list[Section]:
        """What is fastest, a table of what was tried, and what to change."""
        present = as_code(self.present)
        rows: list[list[Cell]] = [
            [
                as_code(trial.changes) or f"{present} (present)".strip(),
                "" if trial.throughput is None else Number(trial.throughput, "number"),
                "" if trial.speedup is None else Number(trial.speedup, "times"),
                "" if trial.predicted is None else Number(trial.predicted, "times"),
            ]
            for trial in self.trials
        ]
        ends = [Text(BRACKETS, "note")]
        head = "No other settings were shown to be faster: the present ones stay"
        head += f", {present}." if present else "."
        if self.chosen.speedup is not None:
            faster = f"{self.chosen.speedup:times} as fast with {as_code(self.chosen.changes)}"
            head = f"Training is {faster} as with {present or 'the present settings'}."
            place = f", {self.made_at}" if self.made_at else ""
            change = f"Change where the loader is made{place}: {as_code(self.arguments)}"
            ends.append(Text(change))
        table = Table((f"{self.unit}/s", "measured", "speed-up", "predicted"), rows)
        blocks: list[Block] = [table, *map(Text, self.notes), *ends]
        return [Section(head), *(Section("", [block]) for block in blocks)]

    def __str__(self) -> str:
        return "\n".join(line.plain for line in lines(self.sections()))


def as_code(settings: Mapping[str, Any]) -> str:
    """Settings as arguments of a call."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


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

    def runs(changes: Changes, mode: Mode = "log") -> list[Run]:
        """Train on a block of a loader of its own, or for the first run three."""
        loader = make_loader(**_merged(given, changes))
        adapter = BackendAdapter(Backend(loader))
        depth = adapter.describe(loader).prefetch_depth or 0
        last = depth + batches  # one more is asked for, which ends its step
        total, probes = (3 * batches, NAMES) if mode == "alternate" else (last + 2, ())
        of_block = Settings(mode=mode, batches=total, probes=probes, clock=clock)
        measurement = Measurement(loader, of_block, adapter=adapter)
        measurement.recorder.expects_batches = False  # what fails is told as the setting's error
        try:
            epochs = (measurement.epoch(loader, None) for _ in range(total))
            for number, batch in enumerate(islice(chain.from_iterable(epochs), total)):
                step(batch)
                if number in {depth, last}:  # what a device still does is of the batches before
                    adapter.fence()
            return [measurement.recorder.run()]
        finally:
            measurement.close()
            adapter.stop()

    (first,) = runs({}, "alternate")
    return _tuned(first, given, space, runs, rounds)


def tune_command(
    command: Sequence[str],
    settings: RunSettings,
    space: Space,
    stop_after: int | None,
    say: Callable[[str], object],
) -> Tuning:
    """Run `command` for a short while with each setting: logs and output go to `settings.folder`.

    `settings` are those of all runs. A run ends after `stop_after` batches of the training loader,
    by default after about RUN_S seconds. Raises LoadevalError where the first run measured nothing.
    """
    numbers = count(1)

    def runs(changes: Changes, batches: int, mode: Mode = "log") -> list[Run]:
        folder = Path(settings.folder) / f"{next(numbers):02}"
        folder.mkdir()
        say(f"loadeval: run {folder.name}, {as_code(changes) or 'present settings'}")
        of_run = replace(
            settings,
            folder=str(folder),
            mode=mode,
            batches=batches if mode == "alternate" else None,
            settings=_merged(settings.settings, changes),
        )
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

    def runs_in_turn(changes: Changes) -> list[Run]:
        loads = {"num_workers": first.loader.workers, **_merged(settings.settings, changes)}
        depth = (loads["num_workers"] or 0) * (loads.get("prefetch_factor") or 2)
        return runs(changes, wanted + depth)

    return _tuned(first, dict(settings.settings), space, runs_in_turn, rounds=2)


def _tuned(  # noqa: C901 - one way through
    first: Run,
    given: Changes,
    space: Space,
    runs: Callable[[Changes], Iterable[Run]],
    rounds: int,
) -> Tuning:
    """Choose what to try by the `first` run, measure it in turns, and tell what came of it."""
    loader, by_sample = first.loader, bool((first.steps.samples > 0).all())
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
    tried = [Trial({}), *_likeliest(first, present, space, notes)]
    rates: list[list[float]] = [[] for _ in tried]
    failed: dict[int, Exception] = {}

    def serve(_round: int, place: int) -> Exception | None:
        if len(failed) == len(tried) - 1:  # nothing is left to compare with
            return None
        try:
            rates[place].append(_throughput(runs(dict(tried[place].changes)), by_sample))
        except Exception as error:
            if not place:
                raise
            return error
        return None

    forth = list(range(len(tried)))
    try:
        in_rounds([forth, forth[::-1]] * rounds, serve, failed)
    except KeyboardInterrupt:
        if len(rates[0]) <= 1:  # which gives no interval
            raise
        notes.append("Ended early by Ctrl-C.")
    for place, trial in enumerate(tried):
        if place in failed:
            error = in_words(failed[place])
            notes.append(f"With {as_code(trial.changes)} it failed: {error}")
            tried[place] = replace(trial, error=error)
        elif rates[place]:
            mean = float(np.mean(rates[place]))
            speedup = _speedup(rates[place], rates[0]) if place else None
            tried[place] = replace(trial, throughput=mean, speedup=speedup)
    faster = [
        (trial.speedup.value, trial)
        for trial in tried
        if trial.speedup is not None and trial.speedup.bounds[0] > 1
    ]
    fastest = max((value for value, _ in faster), default=0.0)
    level = (trial for value, trial in faster if value * (1 + LEVEL) > fastest)
    chosen, names = next(level, tried[0]), loader.setting_names or {}
    varied = {name for trial in tried for name in trial.changes} or set(space)
    return Tuning(
        trials=tuple(tried),
        chosen=chosen,
        best=_merged(given, chosen.changes),
        arguments={names.get(name, name): value for name, value in chosen.changes.items()},
        present={name: present[name] for name in space if name in varied and name in present},
        unit=first.header.unit if by_sample else "batches",
        made_at=loader.made_at,
        notes=tuple(notes),
    )


def _speedup(rates: Sequence[float], present: Sequence[float]) -> Estimate | None:
    """The geometric mean of the ratios, turn by turn; None of fewer than two."""
    logs = np.log([one / other for one, other in zip(rates, present, strict=False)])
    if len(logs) < 2:  # noqa: PLR2004 - one has no interval
        return None
    half = student(len(logs) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return Estimate(*(math.exp(logs.mean() + each) for each in (0.0, -half, half)))


def _likeliest(first: Run, present: Changes, space: Space, notes: list[str]) -> list[Trial]:
    """What to measure, in the order of the space, each with its predicted speed-up.

    Without what the machine has no memory for. If there are more than MOST: the cheapest with about
    the highest prediction, and its neighbours whose range reaches that.
    """
    model = None
    try:
        model = Model.of(first)
    except UsageError as error:
        notes.append(f"Nothing was predicted: {error}.")
    trials: dict[str, Trial] = {}
    for choices in product(*space.values()):
        point = _merged({}, dict(zip(space, choices, strict=True)), present["num_workers"])
        changes = {name: value for name, value in point.items() if value != present.get(name)}
        code, predicted = as_code(changes), None
        if not changes or code in trials:
            continue
        if model is not None and changes.keys() <= PREDICTED:
            change = asked_for(changes, {}, model.settings, model.costs, model.parts)
            if shortages(model.run, *memory_bytes(model, change)):
                continue
            predicted = model.simulate(change)
        trials[code] = Trial(changes, predicted)
    candidates = list(trials.values())
    if len(candidates) <= MOST:
        return candidates
    speedups = [trial.predicted for trial in candidates if trial.predicted is not None]
    if len(speedups) < len(candidates):
        raise UsageError(
            f"{' '.join(notes)} Without a prediction, {len(candidates)} settings are too many to "
            f"measure; expected {MOST} at most in --space or space=, such as num_workers=2,4,8"
        )
    highest = max(speedup.value for speedup in speedups)
    if highest < 1 + LEVEL:
        notes.append(f"No other settings are predicted to be {LEVEL:.0%} faster.")
        return []
    reach = [place for place, each in enumerate(speedups) if each.bounds[1] >= highest]
    best = next(n for n, at in enumerate(reach) if speedups[at].value * (1 + LEVEL) > highest)
    return [candidates[place] for place in reach[max(best - 1, 0) :][:MOST]]


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


def _merged(given: Mapping[str, Any], changes: Mapping[str, Any], workers: Any = None) -> Changes:
    """Both together, without what a loader without workers does not take.

    It has as many `workers` unless that changes.
    """
    merged = {**given, **changes}
    if changes.get("num_workers", workers) == 0:
        merged = {name: value for name, value in merged.items() if name not in NEED_WORKERS}
    return merged

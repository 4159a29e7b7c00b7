"""Sentences about what tuning a loader found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.predict.tuning import WORKERS, WORTHWHILE, LeftOut, Stop
from loadeval.report.formatting import (
    counted,
    estimated,
    filled,
    number,
    printable,
    settings_as_code,
    shortened,
    speedup,
    whole_share,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum
    from typing import Any

    from loadeval.analysis.predict.prediction import Prediction
    from loadeval.analysis.predict.tuning import Trial, TuningReport

LONGEST_ERROR = 160
"""Characters that are shown of an error: torch puts the worker's traceback into it."""
MOST_LEFT_OUT = 4
"""Settings for which there is no room that are listed for each reason."""
AS_THEY_ARE = "as they are"
"""The best settings, where nothing was passed and nothing changes."""
CURVE_TITLE = "Throughput against num_workers"
LINE_IS_OF_OTHERS = (
    "The line is predicted with the present settings but for num_workers; the best ones have "
    "{own} too."
)
NOTHING_LEFT_OUT = "Nothing: there was room for all that was predicted."
NOT_PREDICTED = "Nothing was predicted, and nothing was left out."
NO_CURVE = (
    "cannot draw throughput against num_workers: nothing was predicted, since what happens inside "
    "this loader is not known; a page shows what was measured: tune.html"
)
NO_STEPS = "no optimizer made steps on the batches of a data loader that loadeval knows"
NOTHING_TO_CHANGE = "The program has the best settings already: there is nothing to change."
APPLY = "The change, for git apply in this folder, or made by loadeval tune --write:"
WRITTEN = "The change, which is written:"
PLACE_UNKNOWN = "it is not known where the program makes its loader"
STOPPED = {
    Stop.BETTER: "Stopped: the best settings are better than their neighbours.",
    Stop.SMALL_GAIN: (
        f"Stopped: no other settings are predicted to gain {whole_share(WORTHWHILE)} or more."
    ),
    Stop.NO_FASTER: "Stopped: no neighbour of the best settings is faster.",
    Stop.MAX_TRIALS: "Stopped: as many settings as allowed were tried; others may be faster.",
    Stop.INTERRUPTED: "Ended early by Ctrl-C; others may be faster.",
    Stop.TRAINING_ENDED: "The training ended before the search did; others may be faster.",
}
LEFT_OUT: dict[Enum, str] = {
    LeftOut.MEMORY: (
        "predicted to take {needed_bytes:size} of memory, {free_bytes:size} may be used"
    ),
    LeftOut.SHARED_MEMORY: (
        "predicted to take {needed_bytes:size} of shared memory (/dev/shm), {free_bytes:size} "
        "may be used"
    ),
}


def tuning_headline(tuning: TuningReport) -> str:
    """Which settings are best, and by how much, in one sentence."""
    what = "Training" if tuning.step else "The loader alone"
    if tuning.best is tuning.present:
        return f"{what} is fastest, or as fast, with the present settings"
    now, best = setting_in_words(tuning.present, tuning), setting_in_words(tuning.best, tuning)
    if tuning.gain is None:
        return f"{what} is fastest with {best}; it was not measured in turns with {now}"
    gain = estimated(tuning.gain, speedup)
    low, high = tuning.gain.low, tuning.gain.high
    if low is not None and high is not None and low <= 1 <= high:
        return f"No difference shown between {best} and {now}: {gain}; {best} is chosen"
    return f"{what} is {gain} as fast with {best} as with {now}"


def basis(tuning: TuningReport) -> str:
    """What was measured, what was predicted, and what an interval is."""
    text = f"{counted(len(tuning.trials), 'setting', 'settings')} tried"
    if len(tuning.trials) > 1:
        text += ", in turns"
    if not tuning.step:
        text += ", without a training step: throughput of the loader alone"
    text += ". Throughput: steady state; speed-up: over the present settings, turn by turn"
    if tuning.epoch_batches is not None:
        text += ", with epoch starts"
    text += ". Brackets: 95% CI of what was measured"
    if not tuning.predicted:
        return (
            f"{text}. Nothing was predicted: what happens inside this loader is not known, so "
            "settings were doubled and halved."
        )
    return f"{text}, expected range of what was predicted."


def setting_in_words(trial: Trial, tuning: TuningReport) -> str:
    """What differs between the trials, as code."""
    every = {name: value for other in tuning.trials for name, value in other.settings.items()}
    names = [
        name
        for name in every
        if any(
            other.settings.get(name) != trial.settings.get(name)
            or (name in other.settings) != (name in trial.settings)
            for other in tuning.trials
        )
    ]
    own = {name: trial.settings[name] for name in names if name in trial.settings}
    if own:
        return settings_as_code(own)
    return "the present settings" if trial is tuning.present else "the default settings"


def chosen_in_words(tuning: TuningReport) -> str:
    """The best settings as code."""
    return settings_as_code(tuning.best.settings) or AS_THEY_ARE


def beside_the_line(tuning: TuningReport) -> str:
    """What the predicted line is of, where the best settings are not on it; else ""."""
    best, present = tuning.best.settings, tuning.present.settings
    own = {
        name: value
        for name, value in best.items()
        if name != WORKERS and (name not in present or present[name] != value)
    }
    return LINE_IS_OF_OTHERS.format(own=settings_as_code(own)) if own else ""


def predicted_in_words(prediction: Prediction | None) -> str:
    """The predicted throughput and the range that it is expected in."""
    if prediction is None:
        return "-"
    rate = prediction.throughput
    return f"{number(rate.value)} [{number(rate.low)}, {number(rate.high)}]"


def failures(tuning: TuningReport) -> list[str]:
    """The settings with which something was raised, with the error, a sentence each."""
    return [
        f"{setting_in_words(trial, tuning)} failed: {shortened(trial.error, LONGEST_ERROR)}"
        for trial in tuning.trials
        if trial.error
    ]


def left_out_in_words(tuning: TuningReport) -> list[str]:
    """Settings for which there is no room, and why, a sentence each."""
    lines = []
    for code in LeftOut:
        of_code = [left for left in tuning.left_out if left.reason.code is code]
        lines += [
            f"{settings_as_code(left.settings)}: {filled(LEFT_OUT[code], left.reason.values)}"
            for left in of_code[:MOST_LEFT_OUT]
        ]
        more = len(of_code) - MOST_LEFT_OUT
        if more > 0:
            lines.append(f"and {more} more: {code.value}")
    return lines


def not_tuned(why: str) -> str:
    """That settings did not take turns to the end, and why."""
    return printable(f"Not tuned: {why}")


def by_hand(settings: Mapping[str, Any], place: str | None, why: str) -> list[str]:
    """What to change where, if there is no diff, and why there is none."""
    where = "" if place is None else f" of the loader made at {place}"
    return [printable(f"Change{where}: {settings_as_code(settings)}"), printable(f"No diff: {why}")]


def left_in_words(tuning: TuningReport) -> str | None:
    """How much ideal loading would add to the best settings; None where that was not measured."""
    if tuning.left is None:
        return None
    return f"Ideal loading would be {estimated(tuning.left, speedup)} as fast as the best settings."


def stopped_in_words(tuning: TuningReport) -> str:
    """Why no more were measured."""
    return STOPPED[tuning.stopped]

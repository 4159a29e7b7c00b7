"""Predictions as text and in words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.prediction import Assumption, Limit, Shortage
from loadeval.analysis.remark import Remark
from loadeval.report.terminal.whatif import curve_lines, curve_notes, curve_rows, prediction_lines
from loadeval.report.wording.findings import describe
from loadeval.report.wording.whatif import (
    ASSUMPTIONS,
    LIMIT_SENTENCES,
    LIMITS,
    NO_WORKERS_SENTENCE,
    SHORTAGES,
    SHORTAGES_FROM,
    assumption_in_words,
    cpu_count,
    cpus_in_words,
    limit_in_short,
    limit_sentence,
    settings_of,
    shortage_in_words,
)
from tests.report.predictions import GROWS, PRESENT_RATE, prediction, worker_curve

if TYPE_CHECKING:
    from loadeval.analysis.remark import Value

VALUES: dict[Assumption, dict[str, Value]] = {
    Assumption.CPU_TIME_GROWS: {"least": 0.0, "most": 0.12},
    Assumption.BLOCKED_IN_PARALLEL: {"share": 0.41},
    Assumption.STORAGE_NOT_KNOWN: {"share": 0.6},
    Assumption.LOCK_LIMITS: {"share": 0.6},
    Assumption.HAND_OVER_USUAL: {"hand_over_ns": 200_000},
    Assumption.WORKERS_START: {"start_ns": 40_000_000},
    Assumption.UNLIKE_REPLAY: {"ratio": 1.3},
}


# The table over num_workers


def test_measured_and_predicted_rows_are_marked() -> None:
    """Each says which it is; the present run is what speed-ups are over."""
    _, *rows = curve_rows(worker_curve())
    assert [row[:2] for row in rows[:3]] == [
        ("1", "predicted"),
        ("2", "measured"),
        ("3", "predicted"),
    ]
    assert rows[1][2:4] == ("500 [480, 520]", "present")
    assert rows[2][2:5] == ("750 [675, 825]", "1.50x [1.35x, 1.65x]", "workers")
    assert rows[4][4:] == ("CPUs", "1.50 GB", "25.0 MB")


def test_several_runs_with_as_many_workers_have_a_row_each() -> None:
    """The last of all is the present one."""
    other = Estimate(1010.0, None, None)
    curve = worker_curve(
        measured=((4, Estimate(1000.0, 990.0, 1010.0)), (4, other), (2, PRESENT_RATE))
    )
    measured = [row[:4] for row in curve_rows(curve)[1:] if row[1] == "measured"]
    assert measured == [
        ("2", "measured", "500 [480, 520]", "present"),
        ("4", "measured", "1,000 [990, 1,010]", "2.00x"),
        ("4", "measured", "1,010", "2.02x"),
    ]


def test_a_run_for_which_nothing_is_predicted() -> None:
    """It has its row all the same."""
    curve = worker_curve(predicted=(prediction(4),), measured=((2, PRESENT_RATE),))
    assert curve_rows(curve)[1] == ("2", "measured", "500 [480, 520]", "present", "", "", "")


def test_columns_of_which_nothing_is_known_are_left_out() -> None:
    """Memory where it was not read, /dev/shm where it is not used."""
    bare = [
        replace(point, memory_bytes=None, shared_memory_bytes=0.0)
        for point in worker_curve().predicted
    ]
    curve = worker_curve(predicted=tuple(bare))
    assert curve_rows(curve)[0] == ("workers", "", "images/s", "speed-up", "held up by")
    assert not any("emory is" in note or "holds the" in note for note in curve_notes(curve))
    assert any("Memory is" in note for note in curve_notes(worker_curve()))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_part_of_the_table_says_what_is_measured(width: int) -> None:
    """It does where it is folded, too, and no line is wider than the screen."""
    lines = curve_lines(worker_curve(), width)
    assert lines[0].startswith("What if: throughput")
    assert max(map(len, lines)) <= width
    table = " ".join(lines).partition("Training may use")[0]
    rows = [line for line in lines if re.match(r"[1-8] [a-z]", line)]
    assert len(rows) % 8 == 0
    assert {row.split()[1] for row in rows if row.startswith("2")} == {"measured"}
    assert {row.split()[1] for row in rows if not row.startswith("2")} == {"predicted"}
    assert table.count("measured") == 1 + len(rows) // 8


def test_what_is_assumed_is_below_the_table() -> None:
    """Each assumption once; nothing where there is none."""
    text = " ".join(" ".join(curve_lines(worker_curve(), 200)).split())
    assert text.count(assumption_in_words(GROWS)) == 1
    assert text.index("Assumed:") > text.index("8 predicted")
    assert "Assumed" not in "".join(curve_lines(worker_curve(predicted=(prediction(),)), 80))


# The present beside other settings


def test_the_present_is_measured_and_the_rest_predicted() -> None:
    """Each under its head; the speed-up with its range."""
    predicted = prediction(4, limit=Limit.CPUS, assumptions=(GROWS,))
    lines = prediction_lines(PRESENT_RATE, prediction(2, 500.0), predicted, 80)
    assert lines[0] == "What if: num_workers=4"
    assert lines[2:9] == [
        "             present, measured  what if, predicted",
        "num_workers  2                  4",
        "images/s     500 [480, 520]     1,000 [900, 1,100]",
        "speed-up                        2.00x [1.80x, 2.20x]",
        "held up by   workers            CPUs",
        "memory       600 MB             1.20 GB",
        "/dev/shm     10.0 MB            20.0 MB",  # noqa: S108 - the name of a row
    ]
    text = " ".join(" ".join(lines).split())
    assert LIMIT_SENTENCES[Limit.CPUS] in text
    assert text.endswith(assumption_in_words(GROWS))


def test_the_settings_that_change_are_told() -> None:
    """All that were given, and no others."""
    predicted = prediction(
        prefetch_factor=8,
        in_order=False,
        cpus=2.5,
        batch_size=64,
        faster={"Blur": 4.0, "step": 2.0},
    )
    lines = prediction_lines(PRESENT_RATE, prediction(), predicted, 200)
    assert lines[0] == (
        "What if: prefetch_factor=8, in_order=False, batch_size=64, CPUs=2.5, "
        "faster=Blur 4x, step 2x"
    )
    assert lines[3:9] == [
        "num_workers      4                  4",
        "prefetch_factor  2                  8",
        "in_order         True               False",
        "batch_size       32                 64",
        "CPUs             4                  2.5",
        "faster                              Blur 4x, step 2x",
    ]


def test_settings_that_change_nothing() -> None:
    """The headline says so; what is not known has no row."""
    predicted = prediction(cpus=None, batch_size=None, memory_bytes=None, shared_memory_bytes=None)
    lines = prediction_lines(PRESENT_RATE, predicted, predicted, 80)
    assert lines[0] == "What if: the present settings"
    assert "memory  " not in "\n".join(lines)


# In words


def test_every_limit_is_said_in_words() -> None:
    """In a table, and as a sentence."""
    assert set(LIMITS) == set(LIMIT_SENTENCES) == set(Limit)
    assert all(sentence.endswith(".") for sentence in LIMIT_SENTENCES.values())


def test_without_workers_none_are_the_limit() -> None:
    """Loading in the training process is."""
    none = prediction(0)
    assert (limit_in_short(none), limit_sentence(none)) == ("no workers", NO_WORKERS_SENTENCE)
    assert limit_in_short(prediction(0, limit=Limit.STEP)) == "training step"
    assert limit_sentence(prediction(1)) == LIMIT_SENTENCES[Limit.WORKERS]


@pytest.mark.parametrize("code", Assumption)
def test_every_assumption_is_a_sentence(code: Assumption) -> None:
    """The sentence has its numbers in it."""
    assert code in ASSUMPTIONS
    sentence = assumption_in_words(Remark(code, VALUES.get(code, {})))
    assert sentence.endswith(".")
    assert "{" not in sentence


def test_a_prediction_is_described() -> None:
    """It is told as predicted, with its range, its limit and what is assumed."""
    sentence = describe(prediction(faster={"Blur": 2.0}, assumptions=(GROWS,)))
    assert sentence.startswith(
        "Predicted with num_workers=4, prefetch_factor=2, in_order=True, batch_size=32, CPUs=4, "
        "faster=Blur 2x: 1,000 [900, 1,100] images/s, 2.00x [1.80x, 2.20x] what was measured. "
    )
    assert sentence.endswith(
        f"{limit_sentence(prediction())} Assumed: {assumption_in_words(GROWS)}"
    )
    assert describe(prediction()).endswith(limit_sentence(prediction()))


@pytest.mark.parametrize(
    ("factor", "expected"), [(4.0, "4x"), (0.5, "0.5x"), (1000.0, "1000x"), (1e9, "removed")]
)
def test_a_factor_is_told_plainly(factor: float, expected: str) -> None:
    """What becomes a thousand times as fast is as good as gone."""
    assert settings_of(prediction(faster={"fetch": factor}))["faster"] == f"fetch {expected}"


def short_of(code: Shortage) -> Remark:
    """60 GB are needed where there are 16."""
    return Remark(code, {"needed_bytes": 60e9, "there_bytes": 16e9})


@pytest.mark.parametrize("code", Shortage)
def test_what_there_is_too_little_of_is_said_beside_the_prediction(code: Shortage) -> None:
    """What is needed, and what the machine has."""
    predicted = prediction(400, shortages=(short_of(code),))
    sentence = shortage_in_words(short_of(code))
    assert "60.0 GB" in sentence
    assert "16.0 GB" in sentence
    text = " ".join(" ".join(prediction_lines(PRESENT_RATE, prediction(), predicted, 80)).split())
    assert sentence in text
    assert sentence in describe(predicted)
    assert set(SHORTAGES) == set(SHORTAGES_FROM) == set(Shortage)


def test_a_curve_tells_from_where_on_there_is_too_little() -> None:
    """The fewest workers; nothing where there is enough."""
    short = [prediction(count, shortages=(short_of(Shortage.MEMORY),)) for count in (80, 70)]
    notes = curve_notes(worker_curve(predicted=(prediction(1), *short)))
    (note_shown,) = (note for note in notes if "or more" in note)
    assert note_shown == "With 70 workers or more, memory exceeds the 16.0 GB of the run's machine."
    assert not any("exceed" in note for note in curve_notes(worker_curve()))


def test_cpus_in_words() -> None:
    """Those that others use are told where they are more than none."""
    assert cpus_in_words(worker_curve()) == "Training may use 4 CPUs."
    used = worker_curve(cpus=2.5, others_cpus=1.24)
    assert cpus_in_words(used) == "Training may use 2.5 CPUs; other programs use 1.2 of them."
    assert cpus_in_words(worker_curve(cpus=None)) == ""
    assert [cpu_count(cpus) for cpus in (1.0, 128.0)] == ["1 CPU", "128 CPUs"]

"""What happens inside a loader, as tables for the terminal and in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from loadeval.analysis.inside.stages import (
    CodeLine,
    NoStages,
    StageReport,
    WorkerTime,
)
from loadeval.analysis.inside.timeline import Stage
from loadeval.analysis.inside.transforms import TransformTime
from loadeval.analysis.remark import Remark
from loadeval.analysis.report import Report, RunReport
from loadeval.report.formatting import NOT_MEASURED
from loadeval.report.terminal.stages import StagesReport, inside_lines
from loadeval.report.wording.stages import stages_in_short, why_no_stages_in_words
from tests.runs.staged import MS, staged, without_stages
from tests.runs.tables import replace

if TYPE_CHECKING:
    from loadeval.data.lines import Mode

WIDTH, MOST_LINES = 80, 40


def reported(mode: Mode = "alternate", **options: Any) -> RunReport:
    (run_report,) = Report.of([staged(mode, **options)]).runs
    return run_report


def changed(run_report: RunReport, **values: Any) -> RunReport:
    """`one`, of whose stages some values are others."""
    return replace(run_report, stages=replace(stages(run_report), **values))


def stages(run_report: RunReport) -> StageReport:
    assert run_report.stages is not None
    return run_report.stages


def cells(lines: list[str], label: str) -> list[str]:
    (row,) = (line for line in lines if line.split("  ")[0] == label)
    return [cell.strip() for cell in row.split("  ")[1:] if cell.strip()]


@pytest.fixture(name="one", scope="module")
def _one() -> RunReport:
    """A run with two workers that alternated."""
    return reported()


@pytest.mark.parametrize("mode", ["alternate", "log"])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_it_fits_a_terminal(mode: Mode, workers: int) -> None:
    """80 columns, and some 40 lines."""
    lines = inside_lines(reported(mode, workers=workers), WIDTH)
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH


def test_the_first_line_says_which_time_is_divided_up(one: RunReport) -> None:
    """The time is that of the loader alone, or the wait."""
    first, *_ = inside_lines(one, WIDTH)
    assert first == "Inside the loader: 11.7 ms a batch with the loader alone, over 72 batches"
    first, *_ = inside_lines(reported("log"), WIDTH)
    assert first.startswith("Inside the loader: training waits ")


def test_a_stage_has_its_time_its_share_and_the_parts_of_that(one: RunReport) -> None:
    """The parts of fetch add up to its share; the rest has none."""
    lines = inside_lines(one, WIDTH)
    time, *parts = cells(lines, "fetch")
    whole, on_cpu, waiting, blocked = (float(part.rstrip("%")) for part in parts)
    assert time == "20.8 ms"
    assert on_cpu + waiting + blocked == pytest.approx(whole, abs=0.15)
    assert cells(lines, "pickle") == ["300 us", "1.9%"]
    assert cells(lines, "not attributed") == ["0.0%"]


def test_cpu_times_that_are_not_known(one: RunReport) -> None:
    """They are "not measured" of fetch and collate, where a reader expects them."""
    unknown: dict[str, Any] = {"cpu_ns": None, "run_queue_ns": None, "blocked_ns": None}
    parts = tuple(replace(part, **unknown) for part in stages(one).stages)
    lines = inside_lines(changed(one, stages=parts, **unknown), WIDTH)
    assert cells(lines, "fetch")[2:] == [NOT_MEASURED] * 3
    assert len(cells(lines, "pickle")) == 2
    assert not any("CPU times are" in line for line in lines)


def test_transforms_are_the_longest(one: RunReport) -> None:
    """Calls, time and share of each, and how many there are more."""
    lines = inside_lines(one, WIDTH)
    assert cells(lines, "GaussianBlur") == ["12.5 ms", "43.5%", "32.0"]
    many = tuple(TransformTime(f"T{at}", 32.0, 1e6, 0.01) for at in range(9))
    lines = inside_lines(changed(one, transforms=many), WIDTH)
    assert "and 4 more" in lines
    none = inside_lines(changed(one, transforms=(), code=()), WIDTH)
    assert not any(line.startswith(("transform", "line of code")) for line in none)


def test_a_line_of_code_says_what_it_was_blocked_in(one: RunReport) -> None:
    """It says so as far as that is known; a long path is cut, and the line is kept."""
    code = (
        CodeLine("data.py:24 load", "", 0.5, 0.25, "folio_wait_bit_common"),
        CodeLine("data.py:35 lock", "", 0.1, 0.1, ""),
        CodeLine("data.py:9 run", "Image.convert", 0.1, 0.0, ""),
        CodeLine(f"{'long/' * 20}data.py:77 decode", "", 0.1, 0.0, ""),
    )
    lines = inside_lines(changed(one, code=code), WIDTH)
    assert cells(lines, "data.py:24 load") == ["45.4%", "22.7% in folio_wait_bit_common"]
    assert cells(lines, "data.py:35 lock") == ["9.1%", "9.1%"]
    assert cells(lines, "data.py:9 run > Image.convert") == ["9.1%"]
    assert cells(lines, "data.py:77 decode") == ["9.1%"]
    longer = (CodeLine(f"a/data.py:77 {'long_' * 20}decode", "", 0.1, 0.0, ""),)
    (long,) = (line for line in inside_lines(changed(one, code=longer), WIDTH) if "decode" in line)
    assert long.startswith("...")
    assert "long_decode  " in long


def test_the_slowest_samples(one: RunReport) -> None:
    """With their indices as a program needs them, and how often they recur."""
    assert cells(inside_lines(one, WIDTH), "25925") == ["25.9 ms", "42.4x", "2"]


def test_no_slow_sample(one: RunReport) -> None:
    """None was slow, or it was not measured."""
    lines = inside_lines(changed(one, slow_samples=()), WIDTH)
    assert cells(lines, "slowest samples") == ["none over 3x the typical one and 100 us"]
    lines = inside_lines(changed(one, slow_samples=(), sample_ns=None), WIDTH)
    assert cells(lines, "slowest samples") == [NOT_MEASURED]


def test_workers_are_told_if_they_differ(one: RunReport) -> None:
    """The slowest and the fastest."""
    assert not any(line.startswith("workers differ") for line in inside_lines(one, WIDTH))
    workers = tuple(
        WorkerTime(at, 9 - at, ms * MS, ms * MS, 32) for at, ms in enumerate((12, 40, 20))
    )
    lines = inside_lines(changed(one, workers=workers), WIDTH)
    expected = "worker 1 40.0 ms a batch (8 batches), worker 0 12.0 ms a batch (9 batches)"
    assert " ".join(cells(lines, "workers differ")) == expected


def test_what_is_not_known_of_a_batch(one: RunReport) -> None:
    """Not measured, where a reader expects it."""
    unknown = dict.fromkeys(("queue_ns", "head_of_line_ns", "pickled_bytes", "read_bytes"))
    lines = inside_lines(changed(one, **unknown), WIDTH)
    for label in ("head-of-line wait", "ready in the queue", "bytes pickled", "bytes read"):
        assert cells(lines, label) == [NOT_MEASURED]
    lines = inside_lines(changed(one, disk_bytes=None, major_faults=1.5), WIDTH)
    assert cells(lines, "bytes read") == ["3.40 MB a batch, from the disk not measured"]
    assert cells(lines, "major page faults") == ["1.50 a batch"]


@pytest.mark.parametrize(("workers", "expected"), [(0, 0), (1, 2), (2, 3)])
def test_what_a_loader_cannot_have_is_left_out(workers: int, expected: int) -> None:
    """Nothing is pickled without workers, and one worker has no order to keep."""
    lines = inside_lines(reported(workers=workers), WIDTH)
    labels = ("head-of-line wait", "ready in the queue", "bytes pickled")
    assert sum(line.startswith(labels) for line in lines) == expected


def test_without_stages_one_line_says_why() -> None:
    """It says what to do, too."""
    run = without_stages(staged("log", batches=20))
    run = replace(run, header=replace(run.header, settings={"stages": False}))
    (run_report,) = Report.of([run]).runs
    (line,) = inside_lines(run_report, WIDTH)
    assert line.startswith("Inside the loader: not measured: ")
    assert "stages=True" in line
    assert 'mode="alternate"' in line


@pytest.mark.parametrize("code", NoStages)
def test_every_reason_has_its_words(code: NoStages) -> None:
    """In one line, without braces."""
    values = {"message": "no fetcher", "loader": "spdl.dataloader.PyTorchDataLoader"}
    sentence = why_no_stages_in_words(Remark(code, values))
    assert "{" not in sentence
    assert "spdl." not in sentence


def test_a_run_that_replayed_says_nothing() -> None:
    """There was no loader."""
    run = without_stages(staged("log", batches=20))
    steps = replace(run.steps, arm=run.steps.arm + 1)
    (run_report,) = Report.of(
        [replace(run, header=replace(run.header, mode="replay"), steps=steps)]
    ).runs
    assert inside_lines(run_report, WIDTH) == []


def test_a_name_cannot_steer_the_terminal(one: RunReport) -> None:
    """Names and places are text."""
    transforms = (TransformTime("\x1b[2J", 1.0, 1e6, 0.1),)
    code = (CodeLine("\x1b[2J", "\x1b[2J", 0.5, 0.5, "\x1b[2J"),)
    hostile = changed(one, transforms=transforms, code=code)
    assert "\x1b" not in "".join([*inside_lines(hostile, WIDTH), stages_in_short(stages(hostile))])


def test_rich_prints_the_same_lines(one: RunReport) -> None:
    """They have the width of its console."""
    console = Console(width=WIDTH, no_color=True)
    with console.capture() as captured:
        console.print(StagesReport(one))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert lines == inside_lines(one, WIDTH)


# In one line


def test_one_line_has_the_main_stages(one: RunReport) -> None:
    """Pickle and receive are the transfer; shares are whole percents."""
    expected = "fetch 72% (GaussianBlur 43%), collate 18%, transfer 9%"
    assert stages_in_short(stages(one)) == expected
    without = stages_in_short(stages(one), transform=False)
    assert without == "fetch 72%, collate 18%, transfer 9%"


def test_what_rounds_to_nothing_is_left_out(one: RunReport) -> None:
    """Stages and transforms; and where nothing was waited for, all of it."""
    stage_report = stages(one)
    small = (TransformTime("Crop", 32.0, 1.0, 0.0),)
    assert "Crop" not in stages_in_short(replace(stage_report, transforms=small))
    assert stages_in_short(replace(stage_report, transforms=())).startswith("fetch 72%, ")
    assert stages_in_short(replace(stage_report, total_ns=0.0)) == ""
    quick = tuple(
        replace(part, charged_ns=1.0) if part.stage is Stage.COLLATE else part
        for part in stage_report.stages
    )
    assert "collate" not in stages_in_short(replace(stage_report, stages=quick))

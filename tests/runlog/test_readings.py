"""What probes read and how long the GPU was idle, as lines, in a log and in a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.errors import RunLogError
from loadeval.runlog.codec import LARGEST, decode, encode, to_text
from loadeval.runlog.model import (
    UNKNOWN,
    Block,
    GpuIdle,
    Header,
    Readings,
    Steps,
    join_readings,
)
from loadeval.runlog.reader import read_run
from loadeval.runlog.writer import RunLog, write_metrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadeval.runlog.codec import Line

NAN = float("nan")
READINGS: dict[str, Any] = {
    "type": "readings",
    "probe": "gpu",
    "subject": "GPU 0 (NVIDIA H100)",
    "time_ns": [10, 20],
    "values": {"power_watts": [350.5, 351], "sm_clock_hz": [None, 1.98e9]},
    "missing": None,
}
STARVATION: dict[str, Any] = {
    "type": "gpu_idle",
    "epoch": 2,
    "first": 7,
    "gpu_idle_ns": [0, None, 3000],
}


def readings(
    *times: int, subject: str = "GPU 0", missing: str | None = None, **values: list[float]
) -> Readings:
    """Readings of the probe "gpu"."""
    columns = {name: np.array(column, np.float64) for name, column in values.items()}
    return Readings("gpu", subject, np.array(times, np.int64), columns, missing)


def gpu_idle(epoch: int, first: int, *gpu_idle_ns: int) -> GpuIdle:
    return GpuIdle(epoch, first, np.array(gpu_idle_ns, np.int64))


def block(epoch: int, start: int, count: int) -> Block:
    """Batches that wait 1 and work 9."""
    requests = np.arange(start, start + 10 * count, 10)
    unknown = np.full(count, UNKNOWN)
    return Block(epoch, "real", requests, np.ones(count, np.int64), unknown, unknown, unknown)


def there_and_back(line: Line) -> Any:
    """What reading makes of `line` once it was written."""
    return decode(json.loads(to_text(encode(line))))


def plain(one: Readings) -> tuple[Any, ...]:
    """All of it as plain values, which compare; NaN as None."""
    values = {
        name: [None if np.isnan(value) else value for value in column]
        for name, column in one.values.items()
    }
    return one.probe, one.subject, one.time_ns.tolist(), values, one.missing


def wrong(line: dict[str, Any], **changes: Any) -> str:
    """What is said of `line` with `changes`."""
    with pytest.raises(RunLogError) as caught:
        decode({**line, **changes})
    return str(caught.value)


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf")])
def test_what_is_not_finite_is_not_known(value: float) -> None:
    """JSON has no such numbers: they are null, and come back as NaN."""
    line = encode(readings(10, 20, power_watts=[value, 1.0]))
    assert line["values"] == {"power_watts": [None, 1.0]}
    assert np.isnan(there_and_back(readings(10, power_watts=[value])).values["power_watts"][0])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("probe", None, "text"),
        ("subject", 3, "text"),
        ("missing", 3, "text or null"),
        ("time_ns", None, "a list of whole numbers"),
        ("time_ns", [1.5, 2], "a whole number, 0 or more"),
        ("time_ns", [None, 2], "a whole number, 0 or more"),
        ("values", None, "an object of lists"),
        ("values", [[1, 2]], "an object of lists"),
    ],
)
def test_fields_of_readings_are_of_their_type(name: str, value: Any, expected: str) -> None:
    """A field of another type shows what it has and what was expected."""
    said = wrong(READINGS, **{name: value})
    assert said.startswith("has ")
    assert said.endswith(f" as {name!r}, where {expected} was expected")


@pytest.mark.parametrize("value", ["1", True, [1], NAN, float("inf"), 10**400], ids=type)
def test_values_are_finite_numbers(value: Any) -> None:
    """Anything else in the column of a quantity shows what it is, and the quantity."""
    said = wrong(READINGS, values={"power_watts": [1, value]})
    assert said.startswith("has ")
    assert said.endswith(" as 'power_watts', where a finite number or null was expected")


@pytest.mark.parametrize("column", [None, 3, {}])
def test_values_are_lists(column: Any) -> None:
    """The column of a quantity that is no list is shown."""
    said = wrong(READINGS, values={"power_watts": column})
    assert said == f"has {column!r} as 'power_watts', where a list of numbers or null was expected"


def test_values_are_as_many_as_times() -> None:
    """A column that is too short names both lengths."""
    said = wrong(READINGS, values={"power_watts": [1]})
    assert said == "has 1 values in 'power_watts' and 2 in 'time_ns', where as many were expected"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epoch", None, "a whole number, 0 or more"),
        ("first", -1, "a whole number, 0 or more"),
        ("gpu_idle_ns", None, "a list of whole numbers"),
        ("gpu_idle_ns", [1, -2], "a whole number, 0 or more or null"),
        ("gpu_idle_ns", [LARGEST + 1], "a whole number, 0 or more or null"),
    ],
)
def test_fields_of_a_starvation_are_of_their_type(name: str, value: Any, expected: str) -> None:
    """So do its fields."""
    assert wrong(STARVATION, **{name: value}).endswith(
        f" as {name!r}, where {expected} was expected"
    )


def test_readings_are_joined_by_probe_and_subject() -> None:
    """Parts follow one another; a quantity that one part lacks is not known there."""
    parts = [
        readings(1, 2, power_watts=[10, 20]),
        readings(2, subject="GPU 1", power_watts=[5]),
        readings(3, sm_clock_hz=[7]),
        readings(missing="GPU is lost"),
    ]
    assert [plain(one) for one in join_readings(parts)] == [
        (
            "gpu",
            "GPU 0",
            [1, 2, 3],
            {"power_watts": [10, 20, None], "sm_clock_hz": [None, None, 7]},
            "GPU is lost",
        ),
        ("gpu", "GPU 1", [2], {"power_watts": [5]}, None),
    ]
    assert join_readings([]) == ()


def test_a_log_keeps_readings_and_gpu_idle(
    tmp_path: Path, make_header: Callable[..., Header]
) -> None:
    """Lines of both kinds may stand anywhere, after the end of their epoch too; none is lost."""
    log = RunLog(tmp_path / "run.jsonl", make_header())
    lines: list[Line] = [
        readings(1, power_watts=[10]),
        block(0, 0, 3),
        gpu_idle(0, 0, 5),
        readings(2, power_watts=[20]),
        block(1, 100, 2),
        gpu_idle(1, 0, 6, 7),
        gpu_idle(0, 1, 8, 9),
    ]
    for line in lines:
        log.write(line)
    log.end(5)
    run = read_run(tmp_path / "run.jsonl")
    assert [plain(one) for one in run.readings] == [
        ("gpu", "GPU 0", [1, 2], {"power_watts": [10, 20]}, None)
    ]
    assert run.steps.gpu_idle_ns.tolist() == [5, 8, 9, 6, 7]
    write_metrics(run, tmp_path / "metrics.json")
    again = read_run(tmp_path / "metrics.json")
    assert again.steps.gpu_idle_ns.tolist() == [5, 8, 9, 6, 7]
    assert [plain(one) for one in again.readings] == [plain(one) for one in run.readings]


def test_starving_of_batches_that_were_lost_is_left_out() -> None:
    """A killed process may have told of batches whose own line was never written."""
    told = [gpu_idle(0, 0, 1, 2), gpu_idle(0, 2, 3, 4, 5), gpu_idle(0, 9, 6)]
    steps = Steps.from_blocks([block(0, 0, 3)], (), told)
    assert steps.gpu_idle_ns.tolist() == [1, 2, 3]


def test_starving_that_is_not_known_stays_so() -> None:
    """A batch that no line tells of is UNKNOWN, not 0."""
    steps = Steps.from_blocks([block(0, 0, 4)], (), [gpu_idle(0, 1, 0, 2)])
    assert steps.gpu_idle_ns.tolist() == [UNKNOWN, 0, 2, UNKNOWN]


def test_steps_tell_their_starving_epoch_by_epoch() -> None:
    """An epoch of which nothing is known has no line."""
    told = [gpu_idle(0, 1, 5), gpu_idle(2, 0, 6, 7)]
    steps = Steps.from_blocks([block(n, 100 * n, 2) for n in range(3)], (), told)
    lines = [(one.epoch, one.first, one.gpu_idle_ns.tolist()) for one in steps.gpu_idle()]
    assert lines == [(0, 0, [UNKNOWN, 5]), (2, 0, [6, 7])]

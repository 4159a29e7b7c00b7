"""What a sampler makes of probes, tick by tick, whatever they do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import pytest

from loadeval.errors import ProbeError
from loadeval.runlog.model import Event, Readings
from loadeval.runtime.metrics_thread import BackgroundThreads, MetricsReader, Probes
from loadeval.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Mapping

ORIGIN_NS = 1_000


class Script:
    """A probe that reads what it is told; an exception is raised."""

    def __init__(self, *answers: Any, name: str = "script", every: int = 1) -> None:
        self.name = name
        self.every = every
        self.answers = list(answers)
        self.did: list[str] = []
        self.fails_to_open: Exception | None = None
        self.fails_to_close: Exception | None = None

    def open(self) -> None:
        self.did.append("open")
        if self.fails_to_open is not None:
            raise self.fails_to_open

    def read(self) -> Mapping[str, Mapping[str, float | None] | str]:
        self.did.append("read")
        if not self.answers:
            return {"it": {"level_bytes": 1}}
        answer: Any = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("dict[str, dict[str, float | None] | str]", answer)

    def close(self) -> None:
        self.did.append("close")
        if self.fails_to_close is not None:
            raise self.fails_to_close


def sampler(*probes: Script) -> tuple[MetricsReader, FakeClock]:
    """A sampler that is ticked by hand, and its clock."""
    clock = FakeClock(ORIGIN_NS)
    return MetricsReader(Probes(probes, 1000), clock, clock.now_ns, BackgroundThreads()), clock


def told(taken: list[Readings | Event]) -> list[Any]:
    """What was taken, as plain values."""
    return [_told(one) for one in taken]


def _told(one: Readings | Event) -> Any:
    if isinstance(one, Event):
        return one.time_ns, one.message
    values = {name: column.tolist() for name, column in one.values.items()}
    found = one.probe, one.subject, one.time_ns.tolist(), values
    return found if one.missing is None else (*found, one.missing)


def test_readings_have_the_time_of_their_tick_since_the_runs_start() -> None:
    """Ticks become rows; the times count from the origin."""
    probe = Script({"a": {"x_s": 1}}, {"a": {"x_s": 2}})
    it, clock = sampler(probe)
    for _ in range(2):
        clock.advance(50)
        it.tick()
    assert told(it.take()) == [("script", "a", [50, 100], {"x_s": [1, 2]})]
    assert probe.did == ["open", "read", "read"]


def test_probes_and_subjects_come_in_the_order_of_their_first_reading() -> None:
    """Each probe and subject has columns of its own."""
    first = Script({"a": {"x_s": 1}, "b": {"x_s": 2}}, {"b": {"x_s": 3}, "c": {"x_s": 4}}, name="1")
    second = Script({"a": {"y_s": 5}}, {"a": {"y_s": 6}}, name="2")
    it, clock = sampler(first, second)
    it.tick()
    clock.advance(7)
    it.tick()
    assert told(it.take()) == [
        ("1", "a", [0], {"x_s": [1]}),
        ("1", "b", [0, 7], {"x_s": [2, 3]}),
        ("2", "a", [0, 7], {"y_s": [5, 6]}),
        ("1", "c", [7], {"x_s": [4]}),
    ]


def test_a_mark_reads_every_open_probe() -> None:
    """Whosever turn it is; those that are still to be opened are left alone."""
    probe = Script(every=5)
    it, clock = sampler(probe)
    it.mark()
    assert it.take() == []
    it.tick()
    clock.advance(3)
    it.mark()
    assert told(it.take()) == [("script", "it", [0, 3], {"level_bytes": [1, 1]})]
    assert probe.did == ["open", "read", "read"]


def test_what_was_taken_is_not_given_again() -> None:
    """Only what came since."""
    it, clock = sampler(Script())
    it.tick()
    assert len(it.take()) == 1
    assert it.take() == []
    clock.advance(3)
    it.tick()
    assert told(it.take()) == [("script", "it", [3], {"level_bytes": [1]})]


def test_what_is_not_known_is_nan() -> None:
    """None, and a quantity that is not there in every reading, are NaN."""
    it, _ = sampler(Script({"a": {"x_s": 1.5, "y_s": None}}, {"a": {"z_s": 3}}))
    it.tick()
    it.tick()
    ((_, _, _, values),) = told(it.take())
    assert list(values) == ["x_s", "y_s", "z_s"]
    assert [value for value in values["x_s"] + values["z_s"] if not math.isnan(value)] == [1.5, 3]
    assert all(map(math.isnan, values["y_s"]))


def test_a_probe_may_be_read_at_every_so_manieth_tick() -> None:
    """With `every` 3 it is opened at the first tick, and read at the first, fourth, seventh."""
    it, clock = sampler(Script(every=3), Script(name="always"))
    for _ in range(8):
        it.tick()
        clock.advance(1)
    (slow, always) = (found[2] for found in told(it.take()))
    assert slow == [0, 3, 6]
    assert always == list(range(8))


def test_a_probe_that_cannot_open_says_why_once() -> None:
    """Its readings are none, with the reason; no event, for nothing ended."""
    probe, other = Script(), Script(name="other")
    probe.fails_to_open = ProbeError("no NVIDIA driver found")
    it, _ = sampler(probe, other)
    it.tick()
    it.tick()
    assert told(it.take()) == [
        ("other", "it", [0, 0], {"level_bytes": [1, 1]}),
        ("script", "", [], {}, "no NVIDIA driver found"),
    ]
    assert probe.did == ["open"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProbeError("the driver is gone"), "the driver is gone"),
        (OSError(5, "Input/output error"), "OSError: [Errno 5] Input/output error"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
def test_a_probe_that_raises_ends(error: Exception, reason: str) -> None:
    """What it read is kept; why it ended, and when, is told; it is closed and left alone."""
    probe, other = Script({"a": {"x_s": 1}}, error), Script(name="other")
    it, clock = sampler(probe, other)
    for _ in range(3):
        it.tick()
        clock.advance(10)
    assert told(it.take()) == [
        ("script", "a", [0], {"x_s": [1]}),
        ("other", "it", [0, 10, 20], {"level_bytes": [1, 1, 1]}),
        ("script", "", [], {}, reason),
        (10, f"readings of the script ended: {reason}"),
    ]
    assert probe.did == ["open", "read", "read", "close"]


@pytest.mark.parametrize("answer", [None, {"a": None}, {"a": {"x_s": "much"}}, {"a": {"x_s": []}}])
def test_a_probe_that_reads_nonsense_ends(answer: Any) -> None:
    """What is no reading is an error of the probe's, not of whoever asks for the readings."""
    probe = Script()
    it, _ = sampler(probe)
    probe.answers = [answer]
    it.tick()
    found, event = it.take()
    assert isinstance(found, Readings)
    assert isinstance(event, Event)
    assert found.missing is not None
    assert "Error" in found.missing


def test_a_probe_that_cannot_say_how_often_it_is_read_ends() -> None:
    """An `every` that is no number of ticks is an error of the probe's too."""
    it, _ = sampler(Script(every=0))
    it.tick()
    assert told(it.take())[0][4].startswith("ZeroDivisionError")


def test_one_subject_may_end_and_others_go_on() -> None:
    """Text in the place of its quantities is why; the probe is read as before."""
    probe = Script(
        {"GPU 0": {"x_s": 1}, "GPU 1": {"x_s": 2}},
        {"GPU 0": "GPU is lost", "GPU 1": {"x_s": 3}},
        {"GPU 1": {"x_s": 4}},
    )
    it, clock = sampler(probe)
    for _ in range(3):
        it.tick()
        clock.advance(10)
    assert told(it.take()) == [
        ("script", "GPU 0", [0], {"x_s": [1]}),
        ("script", "GPU 1", [0, 10, 20], {"x_s": [2, 3, 4]}),
        ("script", "GPU 0", [], {}, "GPU is lost"),
        (10, "readings of GPU 0 ended: GPU is lost"),
    ]


def test_closing_closes_what_is_open() -> None:
    """Probes that opened are closed, once; those that never were, are not."""
    opened, never = Script(), Script(name="never")
    never.fails_to_open = ProbeError("no")
    it, _ = sampler(opened, never)
    it.tick()
    it.close()
    it.close()
    assert (opened.did, never.did) == (["open", "read", "close"], ["open"])


def test_closing_before_the_first_tick_opens_nothing() -> None:
    """A probe that was never needed is left alone."""
    probe = Script()
    it, _ = sampler(probe)
    it.close()
    it.start_when_due()
    it.tick()
    assert (probe.did, it.take()) == ([], [])


def test_after_closing_nothing_is_read() -> None:
    """What was read before can still be taken."""
    it, _ = sampler(Script())
    it.tick()
    it.close()
    it.tick()
    assert len(it.take()) == 1
    assert it.take() == []


def test_a_probe_that_fails_to_close_keeps_no_other_open() -> None:
    """Its error goes no further, at the end and when it ends in the middle."""
    bad, worse, good = Script(), Script(ProbeError("gone"), name="worse"), Script(name="good")
    bad.fails_to_close = worse.fails_to_close = RuntimeError("stuck")
    it, _ = sampler(bad, worse, good)
    it.tick()
    it.close()
    assert [probe.did[-1] for probe in (bad, worse, good)] == ["close"] * 3

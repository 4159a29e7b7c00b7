"""The timeline of a run, by the rules of the Trace Event Format."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval import UsageError, read_run
from loadeval.data.columns import UNKNOWN
from loadeval.export import Format, export_run, trace
from tests.runs.staged import staged
from tests.runs.tables import replace, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval import Run

Events = list[dict[str, Any]]


def exported(run: Run, folder: Path) -> dict[str, Any]:
    (path,) = export_run(run, Format.CHROME, folder / "exported.json")
    timeline: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    return timeline


def events_of(run: Run, folder: Path) -> Events:
    """The events, their times in nanoseconds, found to be by the rules."""
    events: Events = exported(run, folder)["traceEvents"]
    check(events)
    for event in events:
        if "ts" in event:
            event["ts"] = round(event["ts"] * 1000)
        if "dur" in event:
            event["dur"] = round(event["dur"] * 1000)
    return events


def check(events: Events) -> None:
    """What every reader asks for, for times that are rounded and for times that are cut off."""
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    for event in events:
        assert {"ph", "pid", "tid", "name"} <= event.keys()
        assert event["ph"] in {"M", "X", "C", "i"}
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "C":
            assert {type(value) for value in event["args"].values()} <= {int, float}
        if event["ph"] == "i":
            assert event["s"] in {"t", "p", "g"}
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in slices} <= named
    for whole in (round, int):
        for track in named:
            check_nesting([event for event in slices if event["tid"] == track], whole)


def check_nesting(slices: Events, whole: Any) -> None:
    """Check one track: each slice is within another one, or begins when that is over."""
    times = [(whole(span["ts"] * 1000), whole(span["dur"] * 1000)) for span in slices]
    around: list[int] = []
    for begin, length in sorted(times, key=lambda time: (time[0], -time[1])):
        assert length >= 0
        while around and around[-1] <= begin:
            around.pop()
        assert not around or begin + length <= around[-1]
        around.append(begin + length)


def named(events: Events, name: str) -> Events:
    return [event for event in events if event["name"] == name]


def thread(events: Events, name: str) -> int:
    (number,) = [e["tid"] for e in named(events, "thread_name") if e["args"]["name"] == name]
    return int(number)


@pytest.fixture
def events(log_file: Path, tmp_path: Path) -> Events:
    return events_of(read_run(log_file), tmp_path)


def test_waits_and_steps_are_where_they_were(events: Events) -> None:
    """To the nanosecond, with what is known of a batch; a step not known is not drawn."""
    waits = [(event["ts"], event["dur"]) for event in named(events, "wait")]
    assert waits == [(1_001, 40_000), (51_001, 0), (90_000, 2_500), (200_000, 1_000)]
    steps = [(event["ts"], event["dur"]) for event in named(events, "step")]
    assert steps == [(41_001, 10_000), (51_001, 38_999), (92_500, 7_500)]
    assert [event["args"] for event in named(events, "wait")] == [
        {"batch": 0, "samples": 4, "nbytes": 64, "gpu_idle_ns": 0},
        {"batch": 1, "nbytes": 64, "gpu_idle_ns": 500},
        {"batch": 2, "samples": 4, "nbytes": 64},
        {"batch": 0},
    ]


def test_an_epoch_is_around_its_batches_and_its_end(events: Events) -> None:
    """It goes to the end of the request that got no batch, which has a wait of its own."""
    ((first,), (second,)) = named(events, "epoch 0"), named(events, "epoch 1")
    assert (first["ts"], first["dur"]) == (1_001, 105_999)
    assert first["args"]["cause"] == "exhausted"
    assert (second["ts"], second["dur"], second["args"]["cause"]) == (200_000, 1_000, "broken off")
    (end,) = named(events, "wait, exhausted")
    assert (end["ts"], end["dur"], end["tid"]) == (100_000, 7_000, first["tid"])
    assert first["tid"] == thread(events, "epoch 0: batches")


def test_readings_are_counters_and_events_instants(events: Events) -> None:
    """A counter for each quantity, with a gap where the value is not known."""
    counters = [e for e in events if e["ph"] == "C"]
    assert [(e["name"], e["ts"], e["args"]["value"]) for e in counters] == [
        ("gpu 0: busy_percent", 60_000, 97.5),
        ("gpu 0: busy_percent", 150_000, 30.0),
        ("gpu 0: memory_bytes", 150_000, 2e9),
    ]
    (event,) = named(events, "the step changes its batch")
    assert (event["ph"], event["s"], event["ts"]) == ("i", "p", 120_000)


def test_the_process_is_the_run(log_file: Path, tmp_path: Path) -> None:
    """It has its name and mode; what has no time is told beside the events."""
    timeline = exported(read_run(log_file), tmp_path)
    (process,) = named(timeline["traceEvents"], "process_name")
    assert process["args"]["name"] == 'a "run" (log)'
    assert timeline["otherData"]["missing readings"] == {"host": "there is no /proc"}
    assert timeline["otherData"]["created"] == "2026-01-31T12:00:00+00:00"


def test_a_replayed_run_has_the_ideal_arm_alone(replayed: Run, tmp_path: Path) -> None:
    """An open step at the end of the epoch that was broken off is not drawn."""
    events = events_of(replayed, tmp_path)
    arms = [event for event in events if event["ph"] == "X" and "arms" in track(events, event)]
    assert [event["name"] for event in arms] == ["ideal"] * 3
    assert len(named(events, "wait")) == 231
    assert len(named(events, "step")) == 230


def track(events: Events, event: dict[str, Any]) -> str:
    names = {event["tid"]: event["args"]["name"] for event in named(events, "thread_name")}
    return str(names[event["tid"]])


def test_pairs_and_arms_are_on_a_track_of_their_own(alternating: Run, tmp_path: Path) -> None:
    """One slice for each window, with what the window holds; the rest is not counted."""
    events = events_of(alternating, tmp_path)
    arms = [event for event in events if event["ph"] == "X" and "arms" in track(events, event)]
    counted = [event["name"] for event in arms if "pair" in event["name"]]
    expected = [f"{window.arm}, pair {window.pair}" for window in alternating.windows]
    assert Counter(counted) - Counter(expected) <= Counter(counted[-1:])  # broken off in one
    assert not Counter(expected) - Counter(counted)
    (first, *_) = alternating.windows
    (slice_,) = [span for span in arms if span["name"] == f"{first.arm}, pair {first.pair}"]
    assert slice_["args"]["elapsed_ns"] == first.elapsed_ns == slice_["dur"]
    batches = alternating.steps.pair != UNKNOWN
    assert sum(e["args"]["batches"] for e in arms if "pair" in e["name"]) == batches.sum()


def test_a_prefetch_is_where_training_waited_for_it(alternating: Run, tmp_path: Path) -> None:
    """At the request of a batch whose wait is as long as the prefetch at least, or at the end."""
    events = events_of(alternating, tmp_path)
    waits = {event["ts"]: event["dur"] for event in named(events, "wait")}
    ends = {e["ts"] + e["dur"] for e in events if e["name"].startswith("epoch ")}
    prefetches = named(events, "prefetch")
    assert len(prefetches) == len(alternating.prefetches)
    assert any(not prefetch["args"]["timed"] for prefetch in prefetches)  # of the queue
    for prefetch in prefetches:
        longest_ns = prefetch["args"].get("longest_ns", 0)
        taken_ns = longest_ns * prefetch["args"]["batches"]
        assert waits.get(prefetch["ts"], 0) >= taken_ns or prefetch["ts"] in ends
    assert sum(prefetch["ts"] in waits for prefetch in prefetches) >= len(prefetches) - 3


def test_an_epoch_without_batches_has_its_end(empty_file: Path, tmp_path: Path) -> None:
    """It has it where the request that got none is known."""
    events = events_of(read_run(empty_file), tmp_path)
    assert [event["name"] for event in events if event["ph"] == "X"] == [
        "epoch 0",
        "wait, exhausted",
        "epoch 1",
        "wait, failed",
    ]
    (failed,) = named(events, "epoch 1")
    assert failed["args"]["error"] == "OSError: no disk"


def test_pieces_are_joined(
    alternating: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are, however many batches are written at a time."""
    whole = exported(alternating, tmp_path)
    monkeypatch.setattr(trace, "CHUNK", 7)
    (tmp_path / "exported.json").unlink()
    assert exported(alternating, tmp_path) == whole


def test_a_file_of_dali_has_no_timeline(dali_file: Path, tmp_path: Path) -> None:
    """The error says why, and what to export instead."""
    with pytest.raises(UsageError, match=r"no times .* no timeline; export its waits as csv"):
        exported(read_run(dali_file), tmp_path)


# Inside the loader


def on_track(events: Events, name: str) -> Events:
    number = thread(events, name)
    return [event for event in events if event["tid"] == number and event["ph"] == "X"]


def test_workers_have_tracks(tmp_path: Path) -> None:
    """Fetch and collate on one, pickling, which another thread does, on the next."""
    run = staged("log", batches=40, epochs=2)
    events = events_of(run, tmp_path)
    for times in rows_of(run):
        for worker in (0, 1):
            own = times.part(times.worker == worker)
            name = f"epoch {times.epoch}: worker {worker}"
            fetch, collate = (
                [event for event in on_track(events, name) if event["name"] == stage]
                for stage in ("fetch", "collate")
            )
            assert [event["ts"] for event in fetch] == own.fetch_start_ns.tolist()
            assert [event["dur"] for event in fetch] == own.fetch_ns.tolist()
            assert [event["dur"] for event in collate] == own.collate_ns.tolist()
            assert fetch[3]["args"] == {
                "batch": own.batch[3],
                "samples": 32,
                "slowest_index": own.slowest_index[3],
                "slowest_ns": own.slowest_ns[3],
            }
            pickled = on_track(events, f"{name}, queue")
            assert [event["ts"] for event in pickled] == own.pickle_start_ns.tolist()
            assert pickled[0]["args"] == {"batch": worker, "pickled_bytes": 420}


def test_the_training_process_receives_pins_and_hands_out(tmp_path: Path) -> None:
    """Receiving ends when it has the batch; pinning begins then."""
    run = staged("log", batches=30, epochs=1)
    (times,) = rows_of(run)
    pinned = replace(times, pin_ns=np.full(len(times), 10_000))
    events = events_of(replace(run, stages=(pinned,)), tmp_path)
    slices = on_track(events, "epoch 0: receive and pin")
    ends = [event["ts"] + event["dur"] for event in slices if event["name"] == "receive"]
    assert ends == times.received_ns.tolist()
    assert [event["ts"] for event in slices if event["name"] == "pin"] == ends
    indices = on_track(events, "epoch 0: indices")
    assert [event["ts"] + event["dur"] for event in indices] == times.delivered_ns.tolist()


def test_a_loader_without_workers_has_one_track(tmp_path: Path) -> None:
    """It loads on this track; nothing is pickled or received."""
    events = events_of(staged("log", workers=0, batches=20, epochs=1), tmp_path)
    names = [event["args"]["name"] for event in named(events, "thread_name")]
    assert [name for name in names if "arms" not in name and "batches" not in name] == [
        "epoch 0: loading",
        "epoch 0: indices",
    ]


def test_what_overlaps_on_a_track_begins_later(tmp_path: Path) -> None:
    """Readings of two clocks may cross by a little."""
    run = staged("log", batches=30, epochs=1)
    (times,) = rows_of(run)
    late = replace(times, fetch_ns=times.fetch_ns + 500_000)
    events = events_of(replace(run, stages=(late,)), tmp_path)
    assert len(on_track(events, "epoch 0: worker 0")) == 30


def test_times_that_are_not_known_are_not_drawn(tmp_path: Path) -> None:
    """What is not known of a batch is not drawn either."""
    run = staged("log", batches=12, epochs=1)
    (times,) = rows_of(run)
    none = np.full(len(times), UNKNOWN)
    times = replace(times, collate_ns=none, slowest_index=none, received_ns=none)
    events = events_of(replace(run, stages=(times,)), tmp_path)
    assert {event["name"] for event in on_track(events, "epoch 0: worker 0")} == {"fetch"}
    assert "slowest_index" not in on_track(events, "epoch 0: worker 0")[0]["args"]
    assert not any(
        "receive" in str(event["args"].get("name")) for event in named(events, "thread_name")
    )

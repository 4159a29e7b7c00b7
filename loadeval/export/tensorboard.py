"""A run as scalars in TensorBoard's event files. Imports tensorboard."""

from __future__ import annotations

from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from loadeval.export.files import exists
from loadeval.export.times import began_at_s
from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import ARMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from loadeval.export.files import NewFiles
    from loadeval.runlog.columns import Column, Values
    from loadeval.runlog.model import Readings, Run, Steps

Moment = tuple[float, int, list[tuple[str, float]]]
"""The time in seconds since 1970, the step, and the known values by tag."""
EVENTS = "events.out.tfevents.{}.loadeval"
VERSION = "brain.Event:2"
CHUNK = 50_000
"""How many batches to convert at a time."""
SECOND_NS = 1e9
MS_NS = 1e6


def write_scalars(run: Run, folder: Path, files: NewFiles) -> None:
    """Write event files to `folder`; those of an alternating run to a folder for each arm.

    Raises UsageError if loadeval's event files exist already, or the run's start is unknown.
    """
    steps, created_s = run.steps, began_at_s(run)
    alternates = run.header.mode == "alternate"
    places = {arm: folder / arm if alternates else folder for arm in ARMS}
    for place in [folder, *(folder / arm for arm in ARMS)]:
        files.superseded.update(place.glob(EVENTS.format("*")))
    if files.superseded and not files.overwrite:
        raise exists(next(iter(files.superseded)))
    moments_at: dict[Path, list[Iterator[Moment]]] = {}
    for code, arm in enumerate(ARMS):
        (rows,) = np.nonzero((steps.arm == code) & (steps.request_ns != UNKNOWN))
        moments_at.setdefault(places[arm], []).append(_batches(steps, rows, created_s))
    requests = np.sort(steps.request_ns)
    for readings in run.readings:
        moments_at.setdefault(folder, []).append(_readings(readings, requests, created_s))
    for place, moments in moments_at.items():
        place.mkdir(parents=True, exist_ok=True)
        part = files.part(place / EVENTS.format(f"{created_s:010.0f}"))
        _write(part, created_s, chain.from_iterable(moments))


def _batches(steps: Steps, rows: Column, created_s: float) -> Iterator[Moment]:
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        wait_ns, step_ns, samples = steps.wait_ns[part], steps.step_ns[part], steps.samples[part]
        iteration_ns = wait_ns + step_ns
        known = (step_ns != UNKNOWN) & (samples != UNKNOWN) & (iteration_ns > 0)
        values = {
            "loadeval/wait_ms": wait_ns / MS_NS,
            "loadeval/step_ms": np.where(step_ns != UNKNOWN, step_ns / MS_NS, np.nan),
            "loadeval/samples_per_s": np.where(
                known, samples / np.maximum(iteration_ns, 1) * SECOND_NS, np.nan
            ),
        }
        yield from _moments(created_s + steps.request_ns[part] / SECOND_NS, part, values)


def _readings(readings: Readings, requests: Column, created_s: float) -> Iterator[Moment]:
    """The readings, each at the step of the last batch that was requested by then."""
    numbers = np.maximum(np.searchsorted(requests, readings.time_ns, side="right") - 1, 0)
    values = {
        f"{readings.probe}/{readings.subject}/{name}": column
        for name, column in readings.values.items()
    }
    return _moments(created_s + readings.time_ns / SECOND_NS, numbers, values)


def _moments(times_s: Values, numbers: Column, values: Mapping[str, Values]) -> Iterator[Moment]:
    columns = (column.tolist() for column in values.values())
    for time_s, number, *row in zip(times_s.tolist(), numbers.tolist(), *columns, strict=True):
        yield (
            time_s,
            number,
            [pair for pair in zip(values, row, strict=True) if isfinite(pair[1])],
        )


def _write(path: Path, created_s: float, moments: Iterable[Moment]) -> None:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=created_s, file_version=VERSION).SerializeToString())
        for time_s, number, pairs in moments:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in pairs]
            event = Event(wall_time=time_s, step=number, summary=Summary(value=values))
            writer.write(event.SerializeToString())

"""The lines of a run log: a struct for each type. docs/run-log.md describes every field.

Times are whole nanoseconds since the run's start, or durations. None is "not known".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from loadeval.data.columns import listed
from loadeval.errors import RunLogError

Mode = Literal["log", "replay", "alternate"]
Arm = Literal["real", "ideal"]
EventKind = Literal[
    "note",
    "failed backend",
    "error read on",
    "stages missing",
    "worker died",
    "within a step",
    "read in a thread",
]
Cause = Literal["exhausted", "broken off", "failed", "unmeasured"]

FORMAT, VERSION = "loadeval-run", 1
LARGEST = 2**62 - 1
"""It is 146 years in nanoseconds, and twice as much still fits into 64 bits."""
LARGEST_VALUE = 1e100
"""No probe reads more, and the squares of so much still add up to what a float holds."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
Counts: TypeAlias = list[Count]
Gaps: TypeAlias = "list[Count | None] | None"
"""A column in which values may be unknown; None where all are."""
Value: TypeAlias = Annotated[float, Meta(ge=-LARGEST_VALUE, le=LARGEST_VALUE)]
Values: TypeAlias = "list[Value | None]"


class _Line(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """A line; fields that it does not know are of another version, and ignored."""

    MOMENTS: ClassVar[tuple[str, ...]] = ()  # fields that are times since the run's start
    COLUMNS: ClassVar[tuple[str, ...]] = ()  # columns: as long as the first, or None
    BY_NAME: ClassVar[tuple[str, ...]] = ()  # fields that have such columns by name

    def __post_init__(self) -> None:
        columns = {name: getattr(self, name) for name in self.COLUMNS}
        for name in self.BY_NAME:
            columns |= {f"{name} of {key!r}": each for key, each in getattr(self, name).items()}
        for name, column in columns.items():
            first = self.COLUMNS[0]
            if column is not None and len(column) != len(columns[first]):
                raise ValueError(
                    f"{name} has {len(column)} values, where {first} has {len(columns[first])}"
                )


@dataclass(frozen=True, slots=True)
class LoaderInfo:
    """What is known of a loader; None is "not known". docs/run-log.md describes every field.

    `made_at` is the line of the program that made it, and `shards` are those of its dataset, each
    of which one worker reads. `setting_names` has what the user calls the settings that can be
    changed: `num_workers`, `prefetch_factor` or `prefetch_depth`, `persistent_workers`,
    `pin_memory`, `concurrency` and `num_shards`. `overrides` has those that `loadeval run --set`
    gave it in place of the program's.
    """

    backend: str
    adapter: str = "loadeval.IterableAdapter"
    workers: Count | None = None
    prefetch_depth: Count | None = None
    batch_size: Count | None = None
    pinned: bool | None = None
    device: str | None = None
    length: Count | None = None
    start_method: str | None = None
    persistent_workers: bool | None = None
    ready_batches: Count | None = None
    dataset: str | None = None
    sampler: str | None = None
    worker_init: str | None = None
    in_order: bool | None = None
    made_by: str | None = None
    setting_names: Mapping[str, str] | None = None
    shards: Count | None = None
    dataset_objects: Count | None = None
    dataset_object_bytes: Count | None = None
    overrides: Mapping[str, Any] | None = None
    made_at: str | None = None


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What replay keeps: how many batches, their bytes, how long filling took; None: not known."""

    batches: Count
    nbytes: Count | None
    fill_ns: Count | None


class Header(_Line, frozen=True, kw_only=True, tag="header", omit_defaults=False):
    """What is known of a run before its first batch.

    `created` is the wall-clock time, ISO 8601 in UTC, at which the run's own clock read 0.
    `warmup` is how many batches of each epoch the steady part leaves out.
    """

    format: str = FORMAT
    version: int = VERSION
    run_id: str
    name: str
    mode: Mode
    created: str
    unit: str
    warmup: Count
    loader: LoaderInfo
    settings: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    cache: CacheInfo | None = None


class Block(_Line, frozen=True, tag="block"):
    """Consecutive batches of one epoch and one arm, in columns."""

    COLUMNS = ("request_ns", "wait_ns", "step_ns", "samples", "nbytes")

    epoch: Count
    arm: Arm
    request_ns: Counts
    wait_ns: Counts
    step_ns: Gaps = None
    samples: Gaps = None
    nbytes: Gaps = None
    pair: Count | None = None
    instrumented: bool = False


class EpochEnd(_Line, frozen=True, tag="epoch"):
    """How an epoch ended.

    `exhausted` and `failed` carry the request that got no batch and how long it waited;
    `unmeasured` the request from which on the epoch was served without measuring; an epoch that
    was broken off has none. `error` is the loader's exception, as text.
    """

    epoch: Count
    cause: Cause
    request_ns: Count | None = None
    wait_ns: Count | None = None
    error: str | None = None


class Prefetch(_Line, frozen=True, tag="prefetch"):
    """Batches that an alternating run took back to back, without handing them out.

    The last `timed` of them took `elapsed_ns`, and hold `samples`; `waits_ns` has each one's wait.
    """

    pair: Count
    epoch: Count
    batches: Count
    timed: Count
    elapsed_ns: Count
    samples: Count | None = None
    waits_ns: Counts = []
    end_ns: Count | None = None
    began_ns: Count | None = None
    instrumented: bool = False

    def __post_init__(self) -> None:
        if len(self.waits_ns) not in {0, self.batches}:
            raise ValueError(f"waits_ns has {len(self.waits_ns)} values for {self.batches} batches")


class Window(_Line, frozen=True, tag="window"):
    """The counted part of one arm in one pair, or what of it fell into one epoch."""

    pair: Count
    epoch: Count
    arm: Arm
    elapsed_ns: Count
    workers_cpu_ns: Count | None = None
    minor_faults: Count | None = None


class StageTimes(_Line, frozen=True, tag="stages"):
    """What a loader did for some batches of one epoch, in columns."""

    MOMENTS = ("requested_ns", "delivered_ns", "fetch_start_ns", "pickle_start_ns", "received_ns")
    BY_NAME = ("transform_ns", "transform_calls", "elements_before", "elements_after")

    epoch: Count
    batch: Counts
    worker: Gaps = None
    samples: Gaps = None
    requested_ns: Gaps = None
    delivered_ns: Gaps = None
    index_ns: Gaps = None
    fetch_start_ns: Gaps = None
    fetch_ns: Gaps = None
    collate_ns: Gaps = None
    cpu_ns: Gaps = None
    other_cpu_ns: Gaps = None
    run_queue_ns: Gaps = None
    read_bytes: Gaps = None
    disk_bytes: Gaps = None
    major_faults: Gaps = None
    minor_faults: Gaps = None
    system_ns: Gaps = None
    private_bytes: Gaps = None
    shared_bytes: Gaps = None
    opened_files: Gaps = None
    connections: Gaps = None
    requests: Gaps = None
    slowest_ns: Gaps = None
    slowest_index: Gaps = None
    pickle_start_ns: Gaps = None
    pickle_ns: Gaps = None
    pickled_bytes: Gaps = None
    received_ns: Gaps = None
    receive_ns: Gaps = None
    pin_ns: Gaps = None
    tensors: Gaps = None
    transform_ns: dict[str, Values] = {}
    transform_calls: dict[str, Values] = {}
    elements_before: dict[str, Values] = {}
    elements_after: dict[str, Values] = {}

    @classmethod
    def of(
        cls, epoch: int, **columns: npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]
    ) -> StageTimes:
        """The line of these arrays, `batch` among them; UNKNOWN and NaN are not known."""
        content: dict[str, Any] = {
            name: {key: listed(values) for key, values in column.items()}
            if isinstance(column, Mapping)
            else listed(column)
            for name, column in columns.items()
        }
        return cls(epoch, **content)


StageTimes.COLUMNS = tuple(
    name
    for name in StageTimes.__struct_fields__
    if name != "epoch" and name not in StageTimes.BY_NAME
)


class WorkerStart(_Line, frozen=True, tag="worker_start"):
    """How one worker of an epoch's loader started."""

    MOMENTS = ("start_ns", "ready_ns", "pickling_start_ns")

    epoch: Count
    worker: Count
    start_ns: Count
    starting_ns: Count
    ready_ns: Count
    init_ns: Count
    pickling_start_ns: Count | None = None
    pickling_ns: Count | None = None
    sent_bytes: Count | None = None
    unpickling_ns: Count | None = None


class CodeSamples(_Line, frozen=True, tag="code"):
    """How often a worker was found in which lines of code while it fetched and collated.

    In stage "step" it is the training process, at one moment of its step. Places are `FILE:LINE
    FUNCTION`, and ` > ` with what that has called or is blocked in.
    """

    worker: Count | None
    running: dict[str, Count]
    blocked: dict[str, Count]
    calls: dict[str, Count] = {}
    stage: Literal["fetch", "collate", "step"] | None = None
    time_ns: Count | None = None


class OperatorTimes(_Line, frozen=True, tag="operator"):
    """What one operator of a loader's pipeline did, such as a stage of SPDL's."""

    MOMENTS = ("time_ns",)

    epoch: Count
    operator: str
    order: Count
    time_ns: Count
    elapsed_ns: Count
    tasks: Count
    task_ns: Count | None = None
    run_ns: Count | None = None
    cpu_ns: Count | None = None
    concurrency: Count | None = None
    queue_items: Count | None = None
    queue_occupied_ns: Count | None = None
    queue_blocked_ns: Count | None = None


class Readings(_Line, frozen=True, tag="readings"):
    """What one probe read of one subject, a device or a process, in columns."""

    MOMENTS = COLUMNS = ("time_ns",)
    BY_NAME = ("values",)

    probe: str
    subject: str
    time_ns: Counts
    values: dict[str, Values]
    missing: str | None = None


class GpuIdle(_Line, frozen=True, tag="gpu_idle"):
    """How long the device had nothing to do before batches of an epoch, by its own clock."""

    COLUMNS = ("gpu_idle_ns", "gpu_step_ns")

    epoch: Count
    first: Count
    gpu_idle_ns: list[Count | None]
    gpu_step_ns: Gaps = None


class Padding(_Line, frozen=True, tag="padding"):
    """How much of some batches of sequences is padding, in columns."""

    COLUMNS = ("batch", "positions", "padded", "length", "longest")

    epoch: Count
    batch: Counts
    positions: Counts
    padded: Counts
    length: Counts
    longest: Counts


class Event(_Line, frozen=True, tag="event"):
    """Something that happened during a run and bears on what its numbers mean.

    Of a failed backend `message` is its loader's error.
    """

    time_ns: Count
    message: str
    kind: EventKind = "note"


class RunEnd(_Line, frozen=True, tag="end"):
    """The run ended by itself, after `batches` batches in all."""

    batches: Count


Line: TypeAlias = (
    Header
    | Block
    | EpochEnd
    | Prefetch
    | Window
    | StageTimes
    | WorkerStart
    | CodeSamples
    | OperatorTimes
    | Readings
    | GpuIdle
    | Padding
    | Event
    | RunEnd
)
AnyLine = TypeVar("AnyLine", bound=Line)

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder(enc_hook=np.generic.item)
"""A loader may tell its workers, say, as one of NumPy's integers."""


def encode(line: Line) -> bytes:
    """`line` as it stands in a log, its newline included."""
    try:
        return _encoder.encode(line) + b"\n"
    except UnicodeEncodeError:
        # Python has surrogates in names of files that are not UTF-8, and JSON has none alone.
        fields = msgspec.to_builtins(line, enc_hook=np.generic.item)
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        text = re.sub(r"[\ud800-\udfff]", lambda half: rf"\\u{ord(half[0]):x}", text)
        return text.encode() + b"\n"


def decode(text: bytes | msgspec.Raw) -> Line:
    """The line that `text` is. Raises RunLogError, which says what is wrong with it."""
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunLogError(f"is no line of a run log ({error})") from None
    if isinstance(line, Header) and (line.format, line.version) != (FORMAT, VERSION):
        raise RunLogError(
            f"has format {line.format!r} version {line.version}, where {FORMAT!r} version "
            f"{VERSION} was expected"
        )
    return line


def since(line: AnyLine, origin_ns: int) -> AnyLine:
    """The same, with moments that count from `origin_ns`."""

    def moved(moment: Any) -> Any:
        if isinstance(moment, list):
            return [moved(each) for each in moment]
        return None if moment is None else moment - origin_ns

    moments = {name: moved(getattr(line, name)) for name in line.MOMENTS}
    return msgspec.structs.replace(line, **moments)

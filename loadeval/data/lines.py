"""The lines of a run log: a struct for each type; docs/run-log.md is made from them.

Times are whole nanoseconds since the run's start, or durations. None is "not known".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from loadeval.errors import RunLogError
from loadeval.words import shortened

Mode = Literal["log", "replay", "alternate"]
Arm = Literal["real", "ideal"]
EventKind = Literal[
    "note",
    "failed backend",
    "stages missing",
    "within a step",
    "read in a thread",
    "optimizer",
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
    """A line. Fields that are not known here are another version's, and ignored."""

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
    """What is known of a loader; None is "not known".

    Attributes:
        backend: the class of the loader.
        adapter: the class of its adapter.
        workers: worker processes or threads; 0 if the training process loads.
        prefetch_depth: batches that can be ready ahead of their request.
        batch_size: samples in a full batch.
        device: where batches are delivered.
        length: batches in an epoch; None also if it is endless.
        start_method: how worker processes start, such as "fork"; None also without workers.
        ready_batches: batches already loaded when it was wrapped, whose cost no wait shows.
        sampler: the class of what chooses samples.
        worker_init: the name of its `worker_init_fn`; None also if there is none.
        in_order: whether batches come in the order in which they were requested.
        made_by: "transformers" or "ultralytics" if it made the loader, from arguments of its own.
        setting_names: the user's names of settings, by loadeval's: `num_workers` (processes or
            threads), `prefetch_factor` (batches ready for each worker), `prefetch_depth` (batches
            ready altogether), `persistent_workers`, `pin_memory`, `concurrency` (items that one
            operator works on at once), `num_shards` (what makes more shards of a dataset).
        shards: the shards of its dataset, each of which one worker reads.
        overrides: the settings that `loadeval run --set` gave it, by the user's names.
        made_at: the line of the program that made it, "train.py:48".
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
    overrides: Mapping[str, Any] | None = None
    made_at: str | None = None


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What replay keeps: how many batches."""

    batches: Count


class Header(_Line, frozen=True, kw_only=True, tag="header", omit_defaults=False):
    """What is known of a run before its first batch.

    Attributes:
        run_id: unique to the run.
        created: the wall-clock time, ISO 8601 in UTC, at which the run's own clock read 0.
        unit: what reports call the samples, such as "images".
        warmup: how many batches of each epoch the steady part leaves out.
        settings: the evaluator's, for people.
        environment: machine, process and packages, for people; and a job's `rank`, `world_size`.
        cache: what replay keeps; None in other modes.
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
    """Consecutive batches of one epoch and one arm, in columns; a step that is None is open.

    `pair` is the pair of an alternating run in which they count. If they are `instrumented`, stages
    of the loader or the host were read meanwhile, and they do not count.
    """

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

    "exhausted": the loader had no more batches. "failed": it raised, and nobody asked for another
    one. "broken off": the training loop left. "unmeasured": the rest was served without measuring,
    as after `batches=`. `request_ns` is when the batch that never came was requested, or the first
    of the rest, and `wait_ns` how long that request took, 0 for a rest. Of an epoch that was broken
    off `wait_ns` is how long the loader's iterator took to end, None where that is not known, and
    `request_ns` is None. `error` is the loader's exception, as text.
    """

    epoch: Count
    cause: Cause
    request_ns: Count | None = None
    wait_ns: Count | None = None
    error: str | None = None


class Prefetch(_Line, frozen=True, tag="prefetch"):
    """Batches that an alternating run took back to back, before the next block, that of `pair`.

    The last `timed` of them, which were not in the loader's queue, took `elapsed_ns` and hold
    `samples`: that is the loader alone. `waits_ns` has each one's wait, `began_ns` is when the
    first was requested, and `end_ns` how long the loader took to end its epoch, if it did here.
    If they are `instrumented`, stages of the loader were timed meanwhile.
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
    """The counted part of one arm in one pair, or what of it fell into one epoch.

    `elapsed_ns` has the synchronization with the device at both edges. `workers_cpu_ns` is the CPU
    time of the process's children, in ticks of about 10 ms, and `minor_faults` are the process's
    page faults that needed no disk.
    """

    pair: Count
    epoch: Count
    arm: Arm
    elapsed_ns: Count
    workers_cpu_ns: Count | None = None
    minor_faults: Count | None = None


class StageTimes(_Line, frozen=True, tag="stages"):
    """What a loader did for some batches of one epoch, in columns.

    None is not known, or does not apply to the loader.

    Attributes:
        batch: its place among those that the loader gave in this epoch, from 0.
        worker: the worker that loaded it, from 0; None if the training process did.
        requested_ns: when the loader was asked for it.
        delivered_ns: when the loader gave it.
        index_ns: time for the sampler and for handing indices to workers.
        fetch_start_ns: when reading it began.
        fetch_ns: time to read its samples, with their transforms.
        collate_ns: time to make one batch of them.
        cpu_ns: CPU time of the thread, in fetch and collate.
        other_cpu_ns: CPU time of the worker's other threads meanwhile.
        run_queue_ns: time in which the thread was runnable and no CPU was free.
        read_bytes: bytes read by system calls.
        disk_bytes: of these, from the disk.
        minor_faults: page faults that needed no disk.
        system_ns: the part of `cpu_ns` in the kernel; some systems count in milliseconds.
        private_bytes: memory of the worker alone, read at its start and then ever less often.
        shared_bytes: memory that it shares with others; pages that it copies leave it.
        opened_files: files that Python opened; like the next two in one early batch of a worker.
        connections: network connections that Python made.
        requests: requests by Python's `http.client`.
        made: samples made in that batch, those that it does not have included; known where
            functions written in Python return a tensor or array of each.
        fingerprint: a checksum of some content, in the first batches of each worker of a stream.
        slowest_ns: time of its slowest sample.
        slowest_index: that sample's index; of a stream, its place in the worker's epoch.
        pickle_start_ns: when the worker began to pickle it.
        pickled_bytes: size of the pickle, without what is in shared memory.
        received_ns: when the training process had it.
        receive_ns: time to read and unpickle it, once it was ready.
        pin_ns: time to copy it to pinned memory.
        tensors: how many it has; of an epoch's first batches, without workers.
        transform_ns: time in each transform, without transforms inside it.
        transform_calls: how often each was called.
        elements_before: mean size of what goes into a call: numbers of an array, or pixels times
            channels; in each worker's first batch.
        elements_after: of what comes out.
    """

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
    minor_faults: Gaps = None
    system_ns: Gaps = None
    private_bytes: Gaps = None
    shared_bytes: Gaps = None
    opened_files: Gaps = None
    connections: Gaps = None
    requests: Gaps = None
    made: Gaps = None
    fingerprint: Gaps = None
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


StageTimes.COLUMNS = tuple(
    name
    for name in StageTimes.__struct_fields__
    if name != "epoch" and name not in StageTimes.BY_NAME
)


class WorkerStart(_Line, frozen=True, tag="worker_start"):
    """How one worker process of an epoch's loader started.

    The training process began at `start_ns`, and was busy with all workers for `starting_ns`. From
    `pickling_start_ns` on it pickled the dataset and the other arguments of this one, which have
    `sent_bytes` without what tensors hold; None if it was forked. The worker unpickled them for
    `unpickling_ns`, until `ready_ns`; the user's `worker_init_fn` then took `init_ns`.
    """

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
    """How often a worker was found in which lines of code, since its last line of that stage.

    `worker` is None if the training process loads. A place is `FILE:LINE FUNCTION`, the innermost
    line that is in no library, and after ` > ` what that has called or is blocked in. There the
    worker was `running`, or waiting for a CPU, or it was `blocked` by a lock or the disk; `calls`
    has the functions that the line itself called. Compare counts within a `stage` alone: code that
    gives up Python's lock is found more often. What comes before an epoch's first batch, and with
    it, is its `start`; after its last, its `end`. In stage `step` it is the training process, where
    that was at `time_ns` in its step.
    """

    worker: Count | None
    running: dict[str, Count]
    blocked: dict[str, Count]
    calls: dict[str, Count] = {}
    stage: Literal["fetch", "collate", "start", "end", "step"] | None = None
    time_ns: Count | None = None


class OperatorTimes(_Line, frozen=True, tag="operator"):
    """What one operator of a loader's pipeline did since its last line, such as a stage of SPDL's.

    Attributes:
        order: its place in the pipeline, from 0 at the source.
        time_ns: when it was read.
        elapsed_ns: the time since its last line, or since the epoch began.
        tasks: tasks that ended in that time; of a source, the items that it gave.
        task_ns: how long these took in all, the wait for a thread included.
        run_ns: of that, in a thread or process; None also if it has an executor of its own.
        cpu_ns: of that, on a CPU.
        concurrency: tasks that it may work on at once.
        queue_occupied_ns: how long the queue behind it held something.
        queue_blocked_ns: how long tasks waited for room in that queue; of the last operator, how
            long the pipeline rested.
    """

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
    queue_occupied_ns: Count | None = None
    queue_blocked_ns: Count | None = None


class Readings(_Line, frozen=True, tag="readings"):
    """What one probe read of one subject, a device or a process, in columns.

    `values` has a column for each metric, whose name ends in its unit: its value at that moment, or
    the mean since the one before. `missing` is why there are no readings, or no more; without a
    `subject` that of the whole probe.
    """

    MOMENTS = COLUMNS = ("time_ns",)
    BY_NAME = ("values",)

    probe: str
    subject: str
    time_ns: Counts
    values: dict[str, Values]
    missing: str | None = None


class GpuIdle(_Line, frozen=True, tag="gpu_idle"):
    """How long the training's stream had no work in waits of an epoch, by the GPU's own clock.

    The first value is that of batch `first`, from 0. A wait that work of it hid is 0; work of other
    streams, or of the loader in the wait, hides none. `gpu_step_ns` is the GPU's time for the step,
    to the end of what it queued.
    """

    COLUMNS = ("gpu_idle_ns", "gpu_step_ns")

    epoch: Count
    first: Count
    gpu_idle_ns: list[Count | None]
    gpu_step_ns: Gaps = None


class Padding(_Line, frozen=True, tag="padding"):
    """How much of some batches of sequences is padding, in columns.

    Of the `positions` of a batch's sequences so many are `padded`; each sequence has `length` of
    them, and the longest one fills `longest`. `batch` is its number in the epoch, from 0.
    """

    COLUMNS = ("batch", "positions", "padded", "length", "longest")

    epoch: Count
    batch: Counts
    positions: Counts
    padded: Counts
    length: Counts
    longest: Counts


class Event(_Line, frozen=True, tag="event"):
    """Something that happened during a run and bears on what its numbers mean, as a sentence.

    Of a "failed backend" it is the loader's error. "stages missing": why stages are not known.
    "within a step": what the step did besides training, which no figure has. "read in a thread":
    not the main thread reads the loader, without workers. "optimizer": the first says that
    optimizers are watched, the second that one made its first step.
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
        return text.encode(errors="replace") + b"\n"


def decode(text: bytes | msgspec.Raw) -> Line:
    """The line that `text` is. Raises RunLogError, which says what is wrong with it."""
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said = shortened(str(error), 200)
        raise RunLogError(f"is no line of a run log ({said})") from None
    if isinstance(line, Header) and (line.format, line.version) != (FORMAT, VERSION):
        raise RunLogError(
            f"has format {shortened(line.format, 50)!r} version {line.version}, where {FORMAT!r} "
            f"version {VERSION} was expected"
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

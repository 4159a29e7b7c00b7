"""What happens inside a loader, in words: stages, why nothing is known, and captions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.inside.lanes import Choice
from loadeval.analysis.inside.stages import LEAST_SLOW_NS, SLOW_SAMPLE, Basis, NoStages
from loadeval.analysis.inside.timeline import Stage
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    filled,
    number,
    share,
    short_name,
    size,
    whole_share,
)

if TYPE_CHECKING:
    from loadeval.analysis.inside.lanes import Lanes
    from loadeval.analysis.inside.stages import CodeLine, StageReport, WorkerTime
    from loadeval.analysis.remark import Remark
    from loadeval.data.lines import LoaderInfo

TITLE = "Inside the loader"
IN_SHORT = "inside the loader"
OF_WAITS = "inside the waits"
NOT_ATTRIBUTED = "not attributed"
ON_CPU, WAITING_FOR_CPU, BLOCKED = "on CPU", "waiting for CPU", "blocked"
STAGES = {
    Stage.INDICES: "indices",
    Stage.FETCH: "fetch",
    Stage.COLLATE: "collate",
    Stage.PICKLE: "pickle",
    Stage.RECEIVE: "receive",
    Stage.PIN: "pin",
}
BASIS = {
    Basis.LOADER_ALONE: "{time} a batch with the loader alone",
    Basis.WAITS: "training waits {time} a batch",
}
OF_WHAT = "Shares are of {time}."
ALL_STAGES = {Basis.LOADER_ALONE: "loader alone", Basis.WAITS: "wait"}
SPLIT = "CPU times are measured over fetch and collate together."
STAGES_HEAD = ("stage", "a batch", "share", ON_CPU, WAITING_FOR_CPU, BLOCKED)
TRANSFORMS_HEAD = ("transform", "a batch", "share", "calls a batch")
CODE_HEAD = ("line of code", "share", BLOCKED)
SAMPLES_HEAD = ("slowest samples", "longest", "times the typical one", "times seen")
WORKERS_HEAD = ("worker", "batches", "a batch", "samples")
NO_SLOW_SAMPLE = f"none over {SLOW_SAMPLE:g}x the typical one and {duration(LEAST_SLOW_NS)}"
ADVICE = 'to look inside, measure with stages=True or mode="alternate"'
NO_STAGES = {
    NoStages.NOT_ASKED_FOR: f"this run was not asked to look; {ADVICE}",
    NoStages.NOT_RECORDED: f"the file has no stages; {ADVICE}",
    NoStages.ENDED: "{message}",
    NoStages.NO_BATCH: "no batch was served",
    NoStages.LOADER: "loadeval cannot look into {loader:name}; the page on adapters says how to",
}

STAGES_CAPTION = (
    "Where a batch's loading time goes: all stages above, each by itself below, and what "
    "transforms take of fetch. {shares} {split}"
)
SPLIT_CAPTION = (
    "Solid: on a CPU. Hatched: runnable, waiting for a CPU. Light: blocked, by disk, network, lock "
    "or sleep."
)
SPLIT_UNKNOWN = "CPU times were not measured."
WHAT_BARS_ARE = (
    "A bar is the part of the time for which its stage was waited for; workers work in parallel, "
    "so a stage can take longer than its bar."
)
LANES_CAPTION = (
    "{stretch}, a lane for each worker and one for training. Workers fetch and collate; below "
    "that they pickle. The last lane is training: waiting, and working. {held}"
)
STRETCH = {
    Choice.WHOLE_EPOCH: "Epoch {epoch}, all {of} batches",
    Choice.HEAD_OF_LINE: (
        "Epoch {epoch}, batches {first} to {last} of {of}, around the longest head-of-line wait"
    ),
    Choice.TYPICAL: (
        "Epoch {epoch}, batches {first} to {last} of {of}, which took the median time"
    ),
}
HELD_UP = "Diamonds mark batches that held up others which were ready before them."
NONE_HELD_UP = "No batch held up others for long."
HELD_UP_NAME = "held up later batches"
TRAINING = "training"
SIDE_BY_SIDE = "Inside the loaders, shares of the loader's time"


def worker_in_words(number: int) -> str:
    """Worker `number`; UNKNOWN, which is under 0, loads in the training process."""
    return f"worker {number}" if number >= 0 else "loading"


def stages_headline(stages: StageReport) -> str:
    """What is attributed, and over how many batches."""
    time = BASIS[stages.basis].format(time=duration(stages.total_ns))
    return f"{TITLE}: {time}, over {counted(stages.batches, 'batch', 'batches')}"


def why_no_stages_in_words(remark: Remark) -> str:
    """Why nothing is known of the inside, and what to do, in one line."""
    values = dict(remark.values)
    if "loader" in values:
        values["loader"] = str(values["loader"]).rsplit(".", maxsplit=1)[-1]
    reason = filled(NO_STAGES[NoStages(remark.code)], values)
    return f"{TITLE}: {NOT_MEASURED}: {reason}"


def work_in_words(stages: StageReport, loader: LoaderInfo) -> str:
    """What loading a batch takes whoever loads it."""
    who = "A worker" if loader.workers else "The training process"
    work_ns = stages.fetch_ns + stages.collate_ns
    parts = f"fetch {duration(stages.fetch_ns)}, collate {duration(stages.collate_ns)}"
    return f"{who} takes {duration(work_ns)} to load a batch ({parts})."


def stages_in_short(report: StageReport, *, transform: bool = True) -> str:
    """The shares of the main stages, and of the longest `transform`; "" where none is known."""
    parts = [
        ("fetch", (Stage.FETCH,)),
        ("collate", (Stage.COLLATE,)),
        ("transfer", (Stage.PICKLE, Stage.RECEIVE)),
        ("pin", (Stage.PIN,)),
    ]
    named = []
    for name, stages in parts:
        part = report.charged_share(*stages)
        if part is not None and part >= LEAST_IN_SHORT:
            longest = _longest(report) if transform and name == "fetch" else ""
            named.append(f"{name} {whole_share(part)}{longest}")
    return ", ".join(named)


def _longest(stages: StageReport) -> str:
    """The transform that takes the most of fetch."""
    first = next(iter(stages.transforms), None)
    part = None if first is None else stages.transform_share(first)
    if first is None or part is None or part < LEAST_IN_SHORT:
        return ""
    return f" ({short_name(first.name, LONGEST_TRANSFORM)} {whole_share(part)})"


LEAST_IN_SHORT = 0.005
"""What is less would be 0%."""
LONGEST_TRANSFORM = 24
"""Characters that are shown of a transform's name in a line with others."""
LONGEST_BLOCKED_IN = 24
"""The same of what the kernel says that a thread is blocked in."""


def blocked_in_words(stages: StageReport, line: CodeLine) -> str:
    """How much of the time a line of code was blocked, and in what; "" for never."""
    if not line.blocked_share:
        return ""
    where = f" in {short_name(line.blocked_in, LONGEST_BLOCKED_IN)}" if line.blocked_in else ""
    return f"{share(stages.code_share(line.blocked_share))}{where}"


def workers_in_words(stages: StageReport) -> str:
    """The fastest worker and the slowest one."""
    fastest, *_, slowest = sorted(stages.workers, key=lambda worker: worker.batch_ns)
    return f"{_worker(slowest)}, {_worker(fastest)}"


def _worker(worker: WorkerTime) -> str:
    batches = counted(worker.batches, "batch", "batches")
    return f"{worker_in_words(worker.worker)} {duration(worker.batch_ns)} a batch ({batches})"


def stage_facts(stages: StageReport, loader: LoaderInfo) -> list[tuple[str, str]]:
    """What else is known of a batch: labels and values."""
    facts = [("workers differ", workers_in_words(stages))] if stages.workers_differ else []
    if (loader.workers or 0) > 1:
        facts.append(("head-of-line wait", _a_batch(stages.head_of_line_ns)))
    if loader.workers:
        facts.append(("ready in the queue", _a_batch(stages.queue_ns)))
        facts.append(("bytes pickled", _bytes(stages.pickled_bytes)))
    read = _bytes(stages.read_bytes)
    if stages.read_bytes is not None:
        read += f", {_of_disk(stages.disk_bytes)}"
    facts.append(("bytes read", read))
    if stages.major_faults:
        facts.append(("major page faults", f"{number(stages.major_faults)} a batch"))
    return facts


def _a_batch(ns: float | None) -> str:
    return NOT_MEASURED if ns is None else f"{duration(ns)} a batch"


def _bytes(nbytes: float | None) -> str:
    return NOT_MEASURED if nbytes is None else f"{size(nbytes)} a batch"


def _of_disk(nbytes: float | None) -> str:
    return f"from the disk {NOT_MEASURED}" if nbytes is None else f"{size(nbytes)} from the disk"


def shares_in_words(stages: StageReport) -> str:
    """What the shares are shares of, and the CPU times, where there are any."""
    of_what = OF_WHAT.format(time=duration(stages.total_ns))
    return of_what if stages.cpu_ns is None else f"{of_what} {SPLIT}"


def lanes_caption(lanes: Lanes) -> str:
    """Which stretch is shown, and what is on it."""
    batch = lanes.times.batch
    stretch = STRETCH[lanes.choice].format(
        epoch=lanes.times.epoch[0], first=batch[0], last=batch[-1], of=lanes.of
    )
    held = HELD_UP if lanes.head_of_line_ns.any() else NONE_HELD_UP
    return LANES_CAPTION.format(stretch=stretch, held=held)

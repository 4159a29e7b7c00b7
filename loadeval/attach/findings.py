"""What is wrong with a training that was seen from outside, and all that is said of it.

The thresholds are those of `loadeval.findings`, which judge a run that was measured; a cost is not
known.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from loadeval.attach.hang import Hang, no_batch_came, numbered, rows
from loadeval.attach.marks import LineOf, Marks
from loadeval.attach.observe import STAGES, Attached, SeenLine, seen_in
from loadeval.attach.trainings import Training
from loadeval.estimate.stats import Estimate
from loadeval.findings import BLOCKED, DOMINATES, MATTERS, WAITS_FOR_CPU
from loadeval.findings.engine import Do, Finding, Set
from loadeval.findings.remedies import remedy_for
from loadeval.inside.stages import DISKS, LOCKS
from loadeval.probes.looks import Observation
from loadeval.probes.stacks import NO_STACKS
from loadeval.report.blocks import Block, Facts, Findings, FindingText, Number, Section, Table, Text
from loadeval.words import counted, cpus, duration, printable, share, shortened

SOURCE = "stacks at random moments, and what the kernel counts meanwhile; nothing is simulated"
NOT_A_SPEEDUP = (
    "What training would gain is not measured: steps may take longer or less long without these "
    "waits, and a GPU may have work meanwhile. This measures it:"
)
BLOCKED_BY = {
    DISKS: (
        "disk",
        "the data is read from the disk, not from the page cache",
        Do(
            "read less, or from a faster disk",
            "smaller or compressed files, few large files read in order, or enough memory to keep "
            "the data in the page cache",
        ),
    ),
    LOCKS: (
        "lock",
        "workers share a lock",
        Do(
            "do not share the lock",
            "open the file or database once in each worker, or hold it for a shorter time; more "
            "workers will not help",
        ),
    ),
    ("",): (
        "storage latency",
        "storage, the network or another process is slow to answer",
        Do(
            "more workers, several requests at once in a sample or batch, or a cache nearby",
            "blocked workers need no CPU, so more of them than there are CPUs help too",
        ),
    ),
}
"""By how the kernel's function begins in which they sleep: the rule, what it means, what to do."""
LONGEST_NAME = 48


def attached(
    training: Training, observation: Observation, marks: Marks, line_of: LineOf
) -> Attached:
    """What an observation of a training shows, and what is said of it."""
    seen = seen_in(observation, training, marks, line_of)
    loading = {mark.loader for mark in marks.functions if mark.activity == "loads"}
    words = training.command or ("python", "train.py")
    findings = _findings(seen, can_have_workers=seen.loader in loading)
    return replace(
        seen,
        headline=_waits(seen),
        findings=tuple(replace(finding, source=SOURCE) for finding in findings),
        to_measure=f"loadeval diagnose -- {printable(shlex.join(words))}",
    )


def with_hang(seen: Attached, hang: Hang) -> Attached:
    """The same with what held it up, where it waited all the time: then no loader is slow."""
    if hang.is_stuck:
        return replace(seen, hang=hang, headline=no_batch_came(hang), findings=())
    owed = f"{hang.who}, at the end of the look; {numbered(hang.idle)} done"
    return replace(seen, waits_for=owed if hang.worker is not None and hang.idle else None)


def _waits(seen: Attached) -> str:
    """How long training waits, and what that bounds."""
    if seen.wait_share is None:
        why = "it was never seen in a loader that loadeval knows"
        why = NO_STACKS[seen.no_stacks] if seen.no_stacks else why
        return f"How long training process {seen.pid} waits is not measured: {why}."
    waits = f"Training process {seen.pid} waits for batches {seen.wait_share:share} of the time"
    if seen.at_most is None:
        return f"{waits}."
    is_enough = " Loading is not what limits it." if seen.wait_share.value < MATTERS else ""
    return f"{waits}: without it, at most {seen.at_most:times} as fast.{is_enough}"


def _findings(seen: Attached, *, can_have_workers: bool) -> Iterator[Finding]:
    """What is wrong with the loader; nothing where training does not wait for it."""
    workers, itself, machine = seen.workers, seen.loads_itself_share, seen.machine
    if seen.wait_share is not None and seen.wait_share.value < MATTERS:
        return
    usable = min(machine.cpus, machine.quota_cores or machine.cpus)
    line = next(iter(workers.lines if workers else seen.own_lines), None)
    blocked = (workers and workers.blocked_share) or 0.0
    queued = (workers and workers.run_queue_share) or 0.0
    if itself is not None and itself.value >= MATTERS:
        do: Set | Do = Do(
            "load in the background", "in a worker, or a thread that keeps batches ready"
        )
        if can_have_workers:
            # So many keep up: each takes as long for a batch as training waits for one now.
            most = max(math.floor(usable) - 1, 1)
            needed = most if itself.value >= 1 else math.ceil(itself.value / (1 - itself.value))
            because = "measure: workers take time to start, and to pass each batch on"
            do = Set("num_workers", 0, min(needed, most), because)
        says = (
            f"Nothing is loaded ahead: training waits {share(itself.value)} of its time, while "
            "each batch is loaded."
        )
        yield Finding(says, [do], rule="zero workers")
    if workers is not None and blocked >= BLOCKED:
        kernel, place = workers.blocked_in or "", line.place if line else "a place not seen"
        rule, means, to_do = next(
            told for names, told in BLOCKED_BY.items() if kernel.startswith(names)
        )
        says = (
            f"Loading is blocked {share(blocked)} of its time, neither on a CPU nor waiting for "
            f"one, at {place}: {means}."
        )
        yield Finding(says, [to_do], sure=False, rule=rule)
    elif line is not None and line.share.value >= DOMINATES:
        says = f"{share(line.share.value)} of loading a batch is spent in {_line(line)}."
        remedy = remedy_for(line.leaf)
        do = Do(
            f"make {line.place.partition(' ')[2]} cheaper",
            "smaller inputs, a faster library, on the GPU, or once and for all before training",
            line.place,
        )
        if remedy is not None:
            do = Do(remedy.do, remedy.because, line.place)
        yield Finding(says, [do], sure=False, rule="slow fetch")
    if workers is not None and queued >= WAITS_FOR_CPU:
        do = Do(
            "make decoding and transforms cheaper, or free CPUs",
            "fewer threads in the training process (torch.set_num_threads), or other programs; "
            "more workers will not help",
        )
        says = (
            f"Loading is ready to run but waits for a CPU {share(queued)} of its time: more "
            "threads compute than there are CPUs."
        )
        yield Finding(says, [do], rule="oversubscription")


def sections(seen: Attached) -> list[Section]:
    """All that is known of a training, as a report."""
    hang, workers, machine, blocks = seen.hang, seen.workers, seen.machine, list[Block]()
    if hang is not None:
        blocks.append(Text(_waits(seen)))
    itself = seen.loads_itself_share
    moments = f"{counted(seen.moments, 'moment')}{'; it has ended' if seen.ended else ''}"
    blocks.append(
        _facts(
            ("command", shlex.join(seen.command)),
            ("seen for", f"{duration(seen.elapsed_ns)}, at {moments}"),
            ("loader", seen.loader),
            *(("asks for batches in", f"{x.place}, {x.share:share}") for x in seen.callers),
            ("  loads itself", f"{itself:share} of the time" if itself and itself.value else None),
            ("waits for", seen.waits_for),
        )
    )
    for each, of in ((workers, "worker"), (seen.threads, "thread")):
        if each is not None:
            read = f"{each.read} of " if each.read < each.count else ""
            stages = [(STAGES[name], part) for name, part in each.stages.items() if part.value]
            blocks += _shares(f"{read}{counted(each.count, of)}", "share of their time", stages)
            lines = [(_line(line), line.share) for line in each.lines]
            blocks += _shares(f"lines of {of}s", "share of loading", lines)
    own = [(_line(line), line.share) for line in seen.own_lines]
    blocks += _shares("lines of training", "share of loading", own)
    blocked, queued = (workers.blocked_share, workers.run_queue_share) if workers else (None, None)
    quota, busy = machine.quota_cores, machine.busy_cpus
    has = [cpus(machine.cpus), *([f"{cpus(quota)} at a time (cgroup quota)"] if quota else [])]
    has += [] if busy is None else [f"{cpus(busy)} in use"]
    blocks.append(
        _facts(
            ("workers blocked", None if blocked is None else f"{share(blocked)} of loading"),
            ("waiting for a CPU", None if queued is None else f"{share(queued)} of loading"),
            ("workers sleep in", None if workers is None else workers.blocked_in),
            ("machine", ", ".join(has)),
            *((name, f"busy {share(part / 100)}") for name, part in machine.gpus.items()),
        )
    )
    if seen.findings:
        found = [
            FindingText(
                f"{finding.rule} ({'measured' if finding.sure else 'likely'})",
                finding.says,
                do=[f"{do.says} ({do.because})" if do.because else do.says for do in finding.do],
            )
            for finding in seen.findings
        ]
        blocks.append(Findings(found))
    of_hang = [Facts(rows(hang))] if hang is not None else []
    shown = [Section(seen.headline, of_hang), *(Section("", [block]) for block in blocks)]
    if hang is None:
        measure = [Text(NOT_A_SPEEDUP), Text(f"   {seen.to_measure}", "command")]
        shown.append(Section("", measure))
    return shown


def _shares(name: str, of: str, parts: Sequence[tuple[str, Estimate]]) -> list[Table]:
    rows = [(label, Number(part, "share")) for label, part in parts]
    return [Table((name, of), rows)] if rows else []


def _facts(*known: tuple[str, str | None]) -> Facts:
    return Facts([(label, text) for label, text in known if text])


def _line(line: SeenLine) -> str:
    """A line, and behind it the function that it called."""
    return f"{line.place} > {shortened(line.leaf, LONGEST_NAME)}" if line.leaf else line.place

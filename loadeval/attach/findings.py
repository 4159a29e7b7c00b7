"""What is wrong with a training that was seen from outside, and all that is said of it.

A finding is a function, with its words; its figures stand in the report. The thresholds are those
of `loadeval.findings`, which judge a run that was measured; a cost is not known.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from loadeval.attach import hang as hangs
from loadeval.attach.hang import Hang
from loadeval.attach.job import Training
from loadeval.attach.marks import Marks, Sources
from loadeval.attach.observe import STAGES, Attached, Loading, SeenLine, Workers, seen_in
from loadeval.findings.cpus import MUCH, WAITS_FOR_CPU
from loadeval.findings.engine import BLOCKED, DOMINATES, MATTERS, Do, Finding, Set
from loadeval.inside.code import DISKS, FROM_DISK, LEAST_FROM_DISK, LOCKS
from loadeval.probes.observing import Observation
from loadeval.probes.stacks import NO_STACKS
from loadeval.report.blocks import Cell, Facts, Findings, FindingText, Number, Section, Table, Text
from loadeval.words import counted, cpus, duration, number, printable, share, shortened, size

SOURCE = "stacks at random moments, and what the kernel counts meanwhile; nothing is simulated"
NOT_A_SPEEDUP = (
    "What training would gain is not measured: steps may take longer or less long without these "
    "waits, and a GPU may have work meanwhile. This measures it:"
)
MOST_PROCESSES = 9
"""So many processes are listed at most; of more workers, the others are counted."""
LONGEST_NAME = 48


def findings_of(  # noqa: C901 - one question after another
    seen: Attached, observation: Observation, *, can_have_workers: bool
) -> tuple[Finding, ...]:
    """What is wrong; nothing of the loader where training does not wait for it."""
    workers, machine, itself = seen.workers, seen.machine, seen.loads_itself_share
    wait = 0.0 if seen.wait_share is None else seen.wait_share.value
    usable = min(machine.cpus, machine.quota_cores or machine.cpus)
    others, found = _cpus_of_others(observation), list[Finding]()
    line = next(iter(workers.loading.lines if workers else seen.own_lines), None)
    is_blocked = workers is not None and (workers.blocked_share or 0.0) >= BLOCKED
    if wait >= MATTERS and itself is not None and itself.value >= MATTERS:
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
        found.append(Finding(says, [do], rule="zero workers"))
    if wait >= MATTERS and is_blocked and workers is not None:
        found.append(_blocked(workers, line.place if line else "a place not seen"))
    if wait >= MATTERS and line is not None and line.share.value >= DOMINATES and not is_blocked:
        because = (
            "smaller inputs, a faster library, on the GPU, or once and for all before training"
        )
        function = line.place.partition(" ")[2]
        says = f"{share(line.share.value)} of loading a batch is spent in {_line(line)}."
        do = Do(f"make {function} cheaper", because, line.place)
        found.append(Finding(says, [do], sure=False, rule="slow fetch"))
    if seen.wait_share is None or wait >= MATTERS:
        found += [*_confined(observation, machine.cpus)]
        if workers is not None and (workers.run_queue_share or 0.0) >= WAITS_FOR_CPU:
            do = Do(
                "free CPUs",
                "fewer threads in the training process (torch.set_num_threads), or other programs; "
                "more workers will not help",
            )
            if workers.count > usable:
                do = Do("make decoding and transforms cheaper, or give training more CPUs")
            elif (others or 0.0) >= MUCH:
                do = Do(
                    "free CPUs that others use", f"other programs use {number(others or 0)} CPUs"
                )
            says = (
                "Loading is ready to run but waits for a CPU "
                f"{share(workers.run_queue_share or 0.0)} of its time: more threads compute than "
                "there are CPUs."
            )
            found.append(Finding(says, [do], rule="oversubscription"))
    if (others or 0.0) >= MUCH and (machine.busy_cpus or 0.0) >= usable - MUCH:
        says = (
            f"Other programs used {cpus(others or 0.0)}, and none is left: what is seen may change "
            "with what else runs."
        )
        do = Do("look again while nothing else runs", "unless training always shares the machine")
        found.append(Finding(says, [do], rule="shared machine"))
    if wait >= MATTERS and not found:
        says = (
            f"Training waits {share(wait)} of its time. Whether the loader is too slow or its "
            "queue too shallow does not show from outside."
        )
        because = "if CPUs are free; or make decoding and transforms cheaper"
        do = Do("try more workers or threads", because)
        found.append(Finding(says, [do], sure=False, rule="waiting"))
    return tuple(replace(finding, source=SOURCE) for finding in found)


def _cpus_of_others(observation: Observation) -> float | None:
    """How many CPUs other programs use; None is not known."""
    processes = (observation.training, *observation.workers)
    own = [each.cpu_cores for each in processes if each.cpu_cores is not None]
    busy = observation.machine.busy_cpus
    return None if busy is None or not own else max(busy - sum(own), 0.0)


def _blocked(workers: Workers, place: str) -> Finding:
    """Workers sleep most of the time in which they load: for a lock, the disk, or storage."""
    part = share(workers.blocked_share or 0.0)
    kernel = workers.blocked_in.kernel if workers.blocked_in else ""
    read, from_disk = workers.read_bytes_per_s or 0.0, workers.disk_read_bytes_per_s or 0.0
    rule = "storage latency"
    says = (
        f"Loading is blocked {part} of its time, neither on a CPU nor waiting for one, at {place}: "
        "storage, the network or another process is slow to answer."
    )
    do = Do(
        "more workers, several requests at once in a sample or batch, or a cache nearby",
        "blocked workers need no CPU, so more of them than there are CPUs help too",
    )
    if kernel.startswith(DISKS) or from_disk >= max(FROM_DISK * read, LEAST_FROM_DISK):
        rule = "disk"
        says = (
            f"Loading is blocked {part} of its time, at {place}: the data is read from the disk, "
            "not from the page cache."
        )
        do = Do(
            "read less, or from a faster disk",
            "smaller or compressed files, few large files read in order, or enough memory to keep "
            "the data in the page cache",
        )
    elif kernel.startswith(LOCKS):
        rule = "lock"
        says = (
            f"Workers are blocked {part} of their time by a lock that they share, at {place} "
            f"({kernel})."
        )
        do = Do(
            "do not share the lock",
            "open the file or database once in each worker, or hold it for a shorter time; more "
            "workers will not help",
        )
    return Finding(says, [do], sure=False, rule=rule)


def _confined(o: Observation, there: int) -> Iterator[Finding]:
    """Workers may use fewer CPUs than there are, and have too few of them."""
    own, each = o.training.cpus_allowed, [w.cpus_allowed for w in o.workers if w.cpus_allowed]
    theirs = frozenset[int]().union(*each)
    every = max(there, len(own or ()), len(theirs))
    # They need one each, and one for training where it may use no other.
    if not own or not each or len(theirs) >= every:
        return
    if len(o.workers) + (own <= theirs) <= len(theirs):
        return
    says = (
        f"{len(o.workers)} workers share {cpus(len(theirs))} and may not use the other "
        f"{cpus(every - len(theirs))}"
    )
    if own != theirs:
        says += (
            f"; the training process may use {cpus(len(own))}. Something set the affinity of the "
            "workers: worker_init_fn, or a library that they import."
        )
        because = (
            "call os.sched_setaffinity(0, range(os.cpu_count())) at the end of worker_init_fn, or "
            "take out what set the affinity"
        )
        do = Do("let workers use all CPUs", because)
    else:
        says += ". It seems to have been so from the start, and may be intended."
        because = "see taskset, numactl, Slurm's --cpus-per-task and --cpu-bind, mpirun's --bind-to"
        do = Do("start training with more CPUs, if that is not intended", because)
    yield Finding(says, [do], sure=False, rule="confined workers")


def attached(
    training: Training, observation: Observation, marks: Marks, sources: Sources
) -> Attached:
    """What an observation of a training shows, and what is said of it.

    `sources` has lines of the files that marks are in, as far as those are needed.
    """
    seen = seen_in(observation, training, marks, sources)
    can_have_workers = any(
        mark.activity == "loads" and mark.loader == seen.loader for mark in marks.functions
    )
    words = training.command or ("python", "train.py")
    return replace(
        seen,
        headline=_headline(seen),
        findings=findings_of(seen, observation, can_have_workers=can_have_workers),
        to_measure=f"loadeval diagnose -- {printable(shlex.join(words))}",
    )


def with_hang(seen: Attached, hang: Hang) -> Attached:
    """The same with what held it up, where it waited all the time: then no loader is slow."""
    if hang.is_stuck:
        return replace(seen, hang=hang, headline=hangs.no_batch_came(hang), findings=())
    owed = hangs.owed_by(hang) if hang.worker is not None and hang.idle else None
    return replace(seen, waits_for=owed)


def _headline(seen: Attached) -> str:
    """How long training waits, and what that bounds."""
    if seen.wait_share is None:
        why = "it was never seen in a loader that loadeval knows"
        if seen.no_stacks is not None:
            why = NO_STACKS[seen.no_stacks]
        return f"How long training process {seen.pid} waits is not measured: {why}."
    waits = f"Training process {seen.pid} waits for batches {seen.wait_share:share} of the time"
    if seen.at_most is None:
        return f"{waits}."
    is_enough = " Loading is not what limits it." if seen.wait_share.value < MATTERS else ""
    return f"{waits}: without it, at most {seen.at_most:times} as fast.{is_enough}"


def sections(seen: Attached) -> list[Section]:
    """All that is known of a training, as a report."""
    shown = [Section(seen.headline)]
    if seen.hang is not None:
        shown = [Section(seen.headline, [Facts(hangs.rows(seen.hang))])]
        shown.append(Section("", [Text(_headline(seen))]))
    shown.append(Section("", [Facts(_about(seen))]))
    shown += [Section("", [table]) for table in _tables(seen) if table.rows]
    shown.append(Section("", [Facts(_of_kernel(seen))]))
    if seen.findings:
        found = [
            FindingText(
                f"{finding.rule} ({'measured' if finding.sure else 'likely'})",
                finding.says,
                do=[f"{do.says} ({do.because})" if do.because else do.says for do in finding.do],
            )
            for finding in seen.findings
        ]
        shown.append(Section("", [Findings(found)]))
    if seen.hang is None:
        shown.append(Section("", [Text(NOT_A_SPEEDUP), Text(f"   {seen.to_measure}", "command")]))
    cost = f"Looking took {share(seen.cost_share)} of the CPUs' time; the training was not paused"
    return [*shown, Section("", [Text(f"{cost} for it.", "note")])]


def _about(seen: Attached) -> list[tuple[str, Cell]]:
    """What was looked at, and what training does."""
    failed = f", {seen.failed_moments:,} more could not be read" if seen.failed_moments else ""
    moments = f"{counted(seen.moments, 'moment')}{failed}{'; it has ended' if seen.ended else ''}"
    itself, starts = seen.loads_itself_share, seen.epoch_starts_share
    rows: list[tuple[str, Cell | None]] = [
        ("command", shlex.join(seen.command) if seen.command else "not known"),
        ("seen for", f"{duration(seen.elapsed_ns)}, at {moments}"),
        ("loader", seen.loader),
        ("read in thread", seen.thread and shortened(seen.thread, LONGEST_NAME)),
        *(("asks for batches in", f"{each.place}, {each.share:share}") for each in seen.callers),
        ("  loads itself", f"{itself:share} of the time" if itself and itself.value else None),
        ("  epochs begin", f"{starts:share} of the time" if starts and starts.value else None),
        ("waits for", seen.waits_for),
    ]
    return [(label, text) for label, text in rows if text is not None]


def _tables(seen: Attached) -> list[Table]:
    """What loads, and in which lines: workers, threads, and the training thread; all processes."""
    workers, threads, loading = seen.workers, seen.threads, list[tuple[str, str, Loading]]()
    if workers is not None:
        read = workers.loading.count
        name = f"{read} of {workers.count} workers" if read < workers.count else None
        loading.append((name or counted(read, "worker"), "workers", workers.loading))
    if threads is not None:
        loading.append((counted(threads.count, "thread"), "threads", threads))
    loading.append(("training", "training", Loading(1, {}, seen.own_lines)))
    tables = []
    for name, of, each in loading:
        stages = [(STAGES[name], part) for name, part in each.stages.items() if part.value]
        for title, unit, shares in (
            (name, "share of their time", stages),
            (f"lines of {of}", "share of loading", [(_line(x), x.share) for x in each.lines]),
        ):
            rows = [(label, Number(part, "share")) for label, part in shares]
            tables.append(Table((title, unit), rows))
    of_processes: list[tuple[Cell, ...]] = [
        (
            f"{'worker' if each.is_worker else 'training'} {each.pid}",
            Number(each.cpu, "share"),
            Number(each.run_queue, "share"),
        )
        for each in seen.processes[:MOST_PROCESSES]
    ]
    if (more := len(seen.processes) - MOST_PROCESSES) > 0:
        of_processes.append((f"and {more:,} more workers", "", ""))
    return [*tables, Table(("process", "on a CPU", "waiting for a CPU"), of_processes)]


def _line(line: SeenLine) -> str:
    """A line, and behind it the function that it called."""
    return f"{line.place} > {shortened(line.leaf, LONGEST_NAME)}" if line.leaf else line.place


def _of_kernel(seen: Attached) -> list[tuple[str, Cell]]:
    """What the kernel tells of the workers and of the machine."""
    workers, machine, rows = seen.workers, seen.machine, list[tuple[str, Cell]]()
    if workers is not None:
        if workers.blocked_share is not None:
            rows.append(("workers blocked", f"{share(workers.blocked_share)} of loading"))
        if (where := workers.blocked_in) is not None:
            label = "workers sleep in" if workers.blocked_share is None else "  mostly in"
            call = None if where.call is None else f"system call {where.call}"
            kernel = where.kernel or "an unknown function of the kernel"
            rows.append((label, ", ".join(filter(None, (kernel, call, where.path)))))
        read, disk = workers.read_bytes_per_s, workers.disk_read_bytes_per_s
        rows += [("workers read", f"{size(read)}/s")] if read else []
        rows += [("  from the disk", f"{size(disk)}/s")] if disk else []
    parts = [cpus(machine.cpus)]
    if machine.quota_cores is not None:
        parts.append(f"{cpus(machine.quota_cores)} at a time (cgroup quota)")
    if machine.busy_cpus is not None:
        parts.append(f"{cpus(machine.busy_cpus)} in use")
    if machine.runnable:
        parts.append(f"{number(fmean(machine.runnable))} threads running or runnable on average")
    gpus = [(f"GPU {name}", f"busy {share(busy / 100)}") for name, busy in machine.gpus.items()]
    return [*rows, ("machine", ", ".join(parts)), *gpus]

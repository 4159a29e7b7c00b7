"""What inside the loader makes training wait: transforms, collate, hand-over, locks, disks."""

from __future__ import annotations

import math
from functools import wraps
from typing import TYPE_CHECKING

from loadeval.analysis.arms import lost_share
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.fixes import best_workers, gain_of
from loadeval.analysis.rules.inside import CHARGED, DOMINATES, FEWEST_BATCHES, LEAST_GAIN
from loadeval.analysis.rules.workers import MUCH, tried_workers, workers_to
from loadeval.analysis.stages import Blockage, blockage_of
from loadeval.analysis.timeline import Stage
from loadeval.analysis.verdict import MODERATE_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Confidence, Fact
    from loadeval.analysis.rules.inside import Inside

WAITS_FOR_CPU = 0.15
"""Of fetching and collating, runnable without a CPU: more busy threads than CPUs."""
LONG_FOR_CPU = 0.3
"""From which on it is told even where it costs training nothing that is known."""
OTHER_THREADS = 0.5
"""CPU time of a worker's other threads, beside that of the one that fetches."""
SLOWEST_COPY_BYTES_PER_NS = 0.4
"""The slowest way of passing a batch between processes: 0.4 GB/s.

Measured with torch 2.13 on four cores, as waits in `next()` for one worker's batches: NumPy arrays
through a pipe, 19 MB in 40 ms (0.48 GB/s) and 2 MB in 4.9 ms (0.41 GB/s); tensors through shared
memory, 19 MB in 0.8 to 4.2 ms. A batch of 1 kB takes 0.4 to 1.3 ms, one of 200 kB no longer.
"""
BYTES_OF_FEW = 1000
"""Of some five tensors, when they are pickled: two hundred each."""
FEWEST_LOGGED = 8
"""Steady batches of a log by itself, before it tells why they are waited for."""
LEAST_TRANSFER_NS = 600_000
"""What passing any batch takes, however small: 0.2 to 0.5 ms were measured."""
MOST_OF_IT = 0.5
"""Of the time that passing takes, or of the waiting: what takes as much is named for it."""
SAMPLED_TOO_OFTEN = 0.1
"""Of fetching and collating: by how much the share of a line may be seen too large."""
FEW = 0.1
"""Of the batches with a slow sample: more are no few samples, unless the same ones come again."""
MOST_SLOW = 0.5
"""Of the batches: when more have a slow sample, that is what samples are like."""
MOST_NAMED = 3
OF_BLOCKAGE = {
    Blockage.LOCK: Rule.LOCK,
    Blockage.DISK: Rule.DISK,
    Blockage.OTHER: Rule.STORAGE_LATENCY,
}
NOT_LOOKED_INTO = Remark(Unknown.NOT_LOOKED_INTO)


def _looks_inside(rule: Callable[[Case, Inside], Answer]) -> Callable[[Case], Answer]:
    """The rule, which cannot tell where the loader was not looked into."""

    @wraps(rule)
    def asked(case: Case) -> Answer:
        return NOT_LOOKED_INTO if case.inside is None else rule(case, case.inside)

    return asked


@_looks_inside
def slow_transform(case: Case, inside: Inside) -> Answer:
    """One transform takes most of loading a batch."""
    top = next(iter(inside.stages.transforms), None)
    if top is None or top.share < DOMINATES or not inside.computes:
        return None
    values: dict[str, Value] = {
        "name": top.name,
        "share": top.share,
        "call_ns": top.ns / top.calls,
        "calls": top.calls,
    }
    cheaper = Remark(Advice.CHEAPER_NAMED, {"name": top.name})
    return _found(
        case,
        Rule.SLOW_TRANSFORM,
        Remark(Problem.TRANSFORM_SLOW, values),
        (*_mostly_in(inside, top.name), cheaper, *or_workers(case, inside)),
        facts(
            ("its share of loading a batch", top.share, "share"),
            ("in a batch", top.ns, "ns"),
            ("calls in a batch", top.calls, "calls"),
        ),
    )


def _mostly_in(inside: Inside, name: str) -> tuple[Remark, ...]:
    """Where the transform `name` spends its time, if that is a function of another name."""
    line = inside.line
    if line is None or line.share < DOMINATES or name in line.place:
        return ()
    return (Remark(Advice.MOSTLY_IN, {"place": line.name}),)


@_looks_inside
def slow_fetch(case: Case, inside: Inside) -> Answer:
    """One function of the dataset takes most of loading a batch."""
    named = next((one.share for one in inside.stages.transforms), 0.0)
    line = inside.line
    if named >= DOMINATES or not inside.computes or inside.collates:
        return None
    if line is None or line.share < DOMINATES:
        return None
    return _found(
        case,
        Rule.SLOW_FETCH,
        Remark(Problem.CODE_SLOW, {"place": line.name, "share": line.share}),
        (Remark(Advice.CHEAPER_NAMED, {"name": line.function}), *or_workers(case, inside)),
        facts(("its share of loading a batch", line.share, "share")),
    )


@_looks_inside
def slow_collate(case: Case, inside: Inside) -> Answer:
    """Collating takes a large part of loading a batch."""
    if not inside.collates:
        return None
    collate_ns, fetch_ns = inside.stages.collate_ns, inside.stages.fetch_ns
    share = collate_ns / (collate_ns + fetch_ns)
    line = inside.line
    # A line that was seen for longer than fetching takes is the collate function's.
    is_named = line is not None and line.share >= max(1 - share + SAMPLED_TOO_OFTEN, DOMINATES)
    name = line.function if line is not None and is_named else "The collate function"
    return _found(
        case,
        Rule.SLOW_COLLATE,
        Remark(Problem.COLLATE_SLOW, {"name": name, "collate_ns": collate_ns, "share": share}),
        (Remark(Advice.CHEAPER_COLLATE), *or_workers(case, inside)),
        facts(("collate", collate_ns, "ns"), ("fetch", fetch_ns, "ns")),
    )


@_looks_inside
def transfer(case: Case, inside: Inside) -> Answer:
    """Passing a batch from its worker to training takes long."""
    stages = inside.stages
    parts = [stages.share_of(stage) for stage in (Stage.PICKLE, Stage.RECEIVE)]
    transfer_ns = sum(one.work_ns for one in parts if one is not None)
    if inside.charged(Stage.PICKLE, Stage.RECEIVE) < CHARGED or transfer_ns < LEAST_TRANSFER_NS:
        return None
    pickled = stages.pickled_bytes or 0.0
    is_piped = pickled / SLOWEST_COPY_BYTES_PER_NS >= MOST_OF_IT * transfer_ns
    receive_ns = sum(one.work_ns for one in parts if one and one.stage == Stage.RECEIVE)
    lock_ns = receive_ns - float(inside.costs.receive_ns.mean())
    problem, advice = Problem.TRANSFER_OF_MANY, Advice.SEND_FEWER
    if inside.costs.lock_ns and lock_ns >= MOST_OF_IT * transfer_ns:
        problem, advice = Problem.TRANSFER_WAITS_FOR_LOCK, Advice.SHARE_BY_FILE
    elif is_piped:
        problem, advice = Problem.TRANSFER_BY_PIPE, Advice.SEND_TENSORS
    elif pickled < BYTES_OF_FEW:
        problem, advice = Problem.TRANSFER_OF_FEW, Advice.SEND_LESS_OFTEN
    return _found(
        case,
        Rule.TRANSFER,
        Remark(problem, {"transfer_ns": transfer_ns, "pickled_bytes": pickled}),
        (Remark(advice), workers_to(Advice.LOAD_IN_TRAINING, case.loader, 0)),
        facts(
            *((one.stage.value, one.work_ns, "ns") for one in parts if one is not None),
            ("pickled", pickled, "bytes"),
            ("size of a batch", case.summary.bytes_per_batch, "bytes"),
        ),
    )


@_looks_inside
def slow_sampler(case: Case, inside: Inside) -> Answer:
    """The training process takes long to choose what is loaded next."""
    index_ns = float(inside.costs.index_ns.mean())
    if not inside.setting.workers and inside.charged(Stage.INDICES) < DOMINATES:
        return None
    if inside.charged(Stage.INDICES) < CHARGED and index_ns < CHARGED * inside.costs.step_ns:
        return None
    return _found(
        case,
        Rule.SLOW_SAMPLER,
        Remark(
            Problem.SAMPLER_SLOW,
            {"index_ns": index_ns, "sampler": case.loader.sampler or "the sampler"},
        ),
        (Remark(Advice.CHEAPER_SAMPLER),),
        facts(("indices of a batch", index_ns, "ns")),
    )


@_looks_inside
def pinning(case: Case, inside: Inside) -> Answer:
    """The thread that pins batches cannot keep up."""
    if inside.charged(Stage.PIN) < CHARGED:
        return None
    pin_ns = float(inside.costs.pin_ns.mean())
    return _found(
        case,
        Rule.PINNING,
        Remark(Problem.PINNING_SLOW, {"pin_ns": pin_ns}),
        (Remark(Advice.SEND_FEWER), workers_to(Advice.LOAD_IN_TRAINING, case.loader, 0)),
        facts(("pinning a batch", pin_ns, "ns")),
    )


@_looks_inside
def head_of_line(case: Case, inside: Inside) -> Answer:
    """Finished batches wait for one that comes before them."""
    waited_ns = inside.stages.head_of_line_ns
    if waited_ns is None or waited_ns < MODERATE_SHARE * inside.base_ns:
        return None
    if inside.slow_worker is not None:
        return None
    share = waited_ns / inside.base_ns
    slow = inside.stages.slow_samples
    return _found(
        case,
        Rule.HEAD_OF_LINE,
        Remark(Problem.FINISHED_BATCHES_WAIT, {"share": share, "waited_ns": waited_ns}),
        (
            Remark(Advice.OUT_OF_ORDER),
            *((Remark(Advice.FIX_SAMPLES, _samples(inside)),) if slow else ()),
        ),
        facts(("waited while a later batch lay ready", waited_ns, "ns")),
    )


@_looks_inside
def slow_samples(case: Case, inside: Inside) -> Answer:
    """A few samples take many times as long as the others."""
    if not inside.stages.slow_samples or isinstance(head_of_line(case), Finding):
        return None
    slow = inside.costs.slow_ns
    comes_again = any(one.times > 1 for one in inside.stages.slow_samples)
    most = MOST_SLOW if comes_again else FEW
    if (slow > 0).mean() > most or slow.sum() < CHARGED * inside.costs.fetch_ns.sum():
        return None
    return _found(
        case,
        Rule.SLOW_SAMPLES,
        Remark(Problem.SAMPLES_SLOW, _samples(inside)),
        (Remark(Advice.FIX_SAMPLES, _samples(inside)),),
        facts(
            ("slowest sample", inside.stages.slow_samples[0].longest_ns, "ns"),
            ("typical sample", inside.stages.sample_ns, "ns"),
        ),
    )


@_looks_inside
def lock(case: Case, inside: Inside) -> Answer:
    """Workers wait for a lock that they share."""
    return _blocked(case, inside, Rule.LOCK, Problem.WORKERS_WAIT_FOR_LOCK, Advice.SHORTER_LOCK)


@_looks_inside
def disk(case: Case, inside: Inside) -> Answer:
    """The data comes from the disk, not from the page cache."""
    return _blocked(case, inside, Rule.DISK, Problem.READ_FROM_DISK, Advice.READ_LESS)


@_looks_inside
def storage_latency(case: Case, inside: Inside) -> Answer:
    """Workers wait for storage, the network or another process."""
    return _blocked(
        case, inside, Rule.STORAGE_LATENCY, Problem.WORKERS_BLOCKED, Advice.MORE_REQUESTS_AT_ONCE
    )


def _blocked(case: Case, inside: Inside, rule: Rule, problem: Problem, advice: Advice) -> Answer:
    if not inside.mostly_blocked or inside.collates:
        return None
    line, workers = inside.stages.blocked_line, inside.setting.workers
    if OF_BLOCKAGE[blockage_of(inside.stages, workers, inside.blocked)] != rule:
        return None
    values: dict[str, Value] = {
        "share": inside.blocked,
        "place": line.place if line else "a place not seen",
    }
    values["kernel"] = line.blocked_in if line and line.blocked_in else "not told"
    changes: tuple[Remark, ...] = (Remark(advice),)
    if rule == Rule.STORAGE_LATENCY:
        more = or_workers(case, inside)
        changes = (*(one for one in more if one.code == Advice.RAISE), *changes)
    elif rule == Rule.DISK:
        values["disk_bytes"] = inside.stages.disk_bytes
    return _found(
        case,
        rule,
        Remark(problem, values),
        changes,
        facts(
            ("blocked", inside.blocked, "share"),
            ("read in a batch", inside.stages.read_bytes, "bytes"),
            ("from the disk in a batch", inside.stages.disk_bytes, "bytes"),
        ),
    )


@_looks_inside
def oversubscription(case: Case, inside: Inside) -> Answer:
    """Workers are runnable, and wait for a CPU."""
    cpu_ns, others_ns = inside.stages.cpu_ns or 0.0, inside.stages.other_cpu_ns or 0.0
    by_threads = others_ns >= OTHER_THREADS * cpu_ns > 0
    if inside.run_queue < WAITS_FOR_CPU:
        return None
    workers, cpus = case.loader.workers or 0, case.cpus or math.inf
    if by_threads and workers and not case.computes_in_one_thread:
        change = Remark(Advice.ONE_THREAD_EACH)
    elif workers > cpus:
        change = workers_to(Advice.LOWER, case.loader, case.cpus)
    else:
        others = case.cpu_use.competing
        change = Remark(Advice.FREE_CPUS, {"others_cpus": others} if others >= MUCH else {})
    problem = Remark(Problem.WORKERS_WAIT_FOR_CPU, {"share": inside.run_queue})
    evidence = facts(
        ("waiting for a CPU", inside.run_queue, "share"),
        ("CPU time of other threads of a worker, in a batch", others_ns, "ns"),
        ("workers", workers, "workers"),
        ("CPUs", case.cpus, "CPUs"),
    )
    rule = Rule.OVERSUBSCRIPTION
    found = _found(case, rule, problem, (change,), evidence, case.contention_share)
    if found is None and inside.run_queue >= LONG_FOR_CPU:  # what training loses was not shown
        return Finding(rule, "low", "measured", problem, (change,), evidence)
    return found


def hardly_wait_for_cpus(case: Case) -> bool:
    """Whether it was measured that workers do not wait for CPUs, or not for long."""
    inside = case.inside
    if inside is None or inside.stages.run_queue_ns is None:
        return False
    return inside.run_queue < WAITS_FOR_CPU


@_looks_inside
def slow_worker(case: Case, inside: Inside) -> Answer:
    """One worker takes longer for a batch than the others."""
    found = inside.slow_worker
    if found is None:
        return None
    worker, others_ns = found
    values = {"worker": worker.worker, "batch_ns": worker.batch_ns, "others_ns": others_ns}
    return _found(
        case,
        Rule.SLOW_WORKER,
        Remark(Problem.WORKER_SLOW, values),
        (Remark(Advice.BALANCE_WORKERS),),
        facts(
            ("a batch in this worker", worker.batch_ns, "ns"), ("in the others", others_ns, "ns")
        ),
    )


@_looks_inside
def few_shards(case: Case, inside: Inside) -> Answer:
    """Some workers have nothing to load."""
    idle = inside.workers - inside.setting.workers
    # Epochs of few batches leave workers without one, too.
    batches = max(map(len, case.real.stages))
    if idle <= 0 or batches < FEWEST_BATCHES * inside.workers:
        return None
    counts = {"idle": idle, "workers": inside.workers}
    return _found(
        case,
        Rule.FEW_SHARDS,
        Remark(Problem.WORKERS_HAVE_NO_SHARD, counts),
        (Remark(Advice.MORE_SHARDS, counts),),
        facts(("workers without a batch", idle, "workers")),
    )


def or_workers(case: Case, inside: Inside) -> tuple[Remark, ...]:
    """To use more workers, where that would help; the first are advised by a rule of their own."""
    return () if case.loads_synchronously else as_many_workers(case, inside)


def as_many_workers(case: Case, inside: Inside) -> tuple[Remark, ...]:
    """To use as many workers as bring the most."""
    best = best_workers(case, inside)
    if best is None:
        return (Remark(Advice.NO_MORE_WORKERS),) if inside.setting.workers else ()
    raised: tuple[Remark, ...] = (workers_to(Advice.RAISE, case.loader, best),)
    if not inside.setting.workers:
        raised = tried_workers(case, best)
    if case.cpu_use.left is None and not inside.mostly_blocked:
        return *raised, Remark(Advice.CPU_USE_NOT_READ)
    return raised


def largest_parts(inside: Inside | None) -> tuple[Fact, ...]:
    """What most of loading a batch goes into, by name; none where that was not looked into."""
    if inside is None:
        return ()
    stages = inside.stages
    work_ns = stages.fetch_ns + stages.collate_ns
    named = [(one.name, one.share) for one in stages.transforms]
    if not named:
        named = [(one.place, one.share) for one in stages.code]
    shares = [("collate", stages.collate_ns / work_ns if work_ns else 0.0), *named]
    shares.sort(key=lambda one: -one[1])
    return facts(*((name, share, "share") for name, share in shares[:MOST_NAMED] if share))


def _samples(inside: Inside) -> dict[str, Value]:
    slow = inside.stages.slow_samples
    told = sorted(slow, key=lambda one: (-one.times, -one.longest_ns))[:MOST_NAMED]
    return {
        "indices": ", ".join(str(one.index) for one in told),
        "longest_ns": slow[0].longest_ns,
        "typical_ns": inside.stages.sample_ns,
    }


def _found(
    case: Case,
    rule: Rule,
    problem: Remark,
    changes: tuple[Remark, ...],
    evidence: tuple[Fact, ...],
    also_lost: float = 0.0,
) -> Answer:
    """The finding, where time is lost, and would be gained without it, or `also_lost` by it."""
    if case.headroom is not None:
        if case.loss_unknown or not (case.lost or _is_lost_inside(case)):
            return case.loss_unknown
    elif (case.summary.wait_share or 0.0) < MODERATE_SHARE:
        return None
    elif case.ideal is None and (too_few := case.too_few(FEWEST_LOGGED)):
        return too_few
    cost = gain_of(case, rule)
    if cost + also_lost < LEAST_GAIN:
        return None
    confidence: Confidence = "likely" if case.lost is None and case.headroom else "measured"
    return Finding(rule, severity_of(cost), confidence, problem, changes, evidence, cost)


def _is_lost_inside(case: Case) -> bool:
    """Whether much is lost by the simulation too, though too few batches waited for an interval."""
    steady = None if case.headroom is None else case.headroom.steady_speedup
    inside = case.inside
    lost = 0.0 if steady is None else lost_share(steady).value
    simulated = 0.0 if inside is None else 1 - inside.costs.step_ns / inside.base_ns
    return min(lost, simulated) >= 2 * MODERATE_SHARE

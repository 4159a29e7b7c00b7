"""What of a loader's stages makes training wait: hand-over, sampler, order, single workers."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

from loadeval.analysis.estimate.arms import lost_share
from loadeval.analysis.estimate.verdict import MODERATE_SHARE
from loadeval.analysis.inside.timeline import Stage
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.case import severity_of
from loadeval.analysis.rules.finding import Advice, Finding, Problem, Rule, Unknown, facts
from loadeval.analysis.rules.fixes import best_workers, gain_of
from loadeval.analysis.rules.inside import CHARGED, DOMINATES, LEAST_GAIN
from loadeval.analysis.rules.workers import tried_workers, workers_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.inside.stages import WorkerTime
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.finding import Confidence, Fact
    from loadeval.analysis.rules.inside import Inside

SLOWEST_COPY_BYTES_PER_NS = 0.4
"""The slowest way of passing a batch between processes: 0.4 GB/s.

Measured with torch 2.13 on four cores, as waits in `next()` for one worker's batches: NumPy arrays
through a pipe, 19 MB in 40 ms (0.48 GB/s) and 2 MB in 4.9 ms (0.41 GB/s); tensors through shared
memory, 19 MB in 0.8 to 4.2 ms. A batch of 1 kB takes 0.4 to 1.3 ms, one of 200 kB no longer.
"""
BYTES_OF_FEW = 1000
"""Some five tensors are pickled to so many bytes: two hundred bytes each."""
FEWEST_LOGGED = 8
"""A log by itself needs so many steady batches to say why training waits for them."""
LEAST_TRANSFER_NS = 600_000
"""Passing any batch takes nearly so long, however small: 0.2 to 0.5 ms were measured."""
MOST_OF_IT = 0.5
"""What takes this share of passing, or of the waiting, is named for it."""
FEW = 0.1
"""Slow samples in a larger share of the batches are not few, unless the same ones come again."""
MOST_SLOW = 0.5
"""When a larger share of the batches has a slow sample, that is what samples are like."""
MOST_NAMED = 3
NOT_LOOKED_INTO = Remark(Unknown.NOT_LOOKED_INTO)


def looks_inside(rule: Callable[[Case, Inside], Answer]) -> Callable[[Case], Answer]:
    """The rule, which cannot tell where the loader was not looked into."""

    @wraps(rule)
    def asked(case: Case) -> Answer:
        return NOT_LOOKED_INTO if case.inside is None else rule(case, case.inside)

    return asked


@looks_inside
def transfer(case: Case, inside: Inside) -> Answer:
    """Passing a batch from its worker to training takes long."""
    stages = inside.stages
    parts = [stages.share_of(stage) for stage in (Stage.PICKLE, Stage.RECEIVE)]
    transfer_ns = sum(part.work_ns for part in parts if part is not None)
    if inside.charged(Stage.PICKLE, Stage.RECEIVE) < CHARGED or transfer_ns < LEAST_TRANSFER_NS:
        return None
    pickled = stages.pickled_bytes or 0.0
    is_piped = pickled / SLOWEST_COPY_BYTES_PER_NS >= MOST_OF_IT * transfer_ns
    receive_ns = sum(part.work_ns for part in parts if part and part.stage == Stage.RECEIVE)
    lock_ns = receive_ns - float(inside.costs.receive_ns.mean())
    problem, advice = Problem.TRANSFER_OF_MANY, Advice.SEND_FEWER
    if inside.costs.lock_ns and lock_ns >= MOST_OF_IT * transfer_ns:
        problem, advice = Problem.TRANSFER_WAITS_FOR_LOCK, Advice.SHARE_BY_FILE
    elif is_piped:
        problem, advice = Problem.TRANSFER_BY_PIPE, Advice.SEND_TENSORS
    elif pickled < BYTES_OF_FEW:
        problem, advice = Problem.TRANSFER_OF_FEW, Advice.SEND_LESS_OFTEN
    return finding_inside(
        case,
        Rule.TRANSFER,
        Remark(problem, {"transfer_ns": transfer_ns, "pickled_bytes": pickled}),
        (Remark(advice), workers_to(Advice.LOAD_IN_TRAINING, case.loader, 0)),
        facts(
            *((part.stage.value, part.work_ns, "ns") for part in parts if part is not None),
            ("pickled", pickled, "bytes"),
            ("size of a batch", case.summary.bytes_per_batch, "bytes"),
        ),
    )


@looks_inside
def slow_sampler(case: Case, inside: Inside) -> Answer:
    """The training process takes long to choose what is loaded next."""
    index_ns = float(inside.costs.index_ns.mean())
    if not inside.setting.workers and inside.charged(Stage.INDICES) < DOMINATES:
        return None
    if inside.charged(Stage.INDICES) < CHARGED and index_ns < CHARGED * inside.costs.step_ns:
        return None
    return finding_inside(
        case,
        Rule.SLOW_SAMPLER,
        Remark(
            Problem.SAMPLER_SLOW,
            {"index_ns": index_ns, "sampler": case.loader.sampler or "the sampler"},
        ),
        (Remark(Advice.CHEAPER_SAMPLER),),
        facts(("indices of a batch", index_ns, "ns")),
    )


@looks_inside
def pinning(case: Case, inside: Inside) -> Answer:
    """The thread that pins batches cannot keep up."""
    if inside.charged(Stage.PIN) < CHARGED:
        return None
    pin_ns = float(inside.costs.pin_ns.mean())
    return finding_inside(
        case,
        Rule.PINNING,
        Remark(Problem.PINNING_SLOW, {"pin_ns": pin_ns}),
        (Remark(Advice.SEND_FEWER), workers_to(Advice.LOAD_IN_TRAINING, case.loader, 0)),
        facts(("pinning a batch", pin_ns, "ns")),
    )


@looks_inside
def head_of_line(case: Case, inside: Inside) -> Answer:
    """Finished batches wait for one that comes before them."""
    waited_ns = inside.stages.head_of_line_ns
    if waited_ns is None or waited_ns < MODERATE_SHARE * inside.recorded.measured_ns:
        return None
    if inside.slow_worker is not None:
        return None
    share = waited_ns / inside.recorded.measured_ns
    slow = inside.stages.slow_samples
    return finding_inside(
        case,
        Rule.HEAD_OF_LINE,
        Remark(Problem.FINISHED_BATCHES_WAIT, {"share": share, "waited_ns": waited_ns}),
        (
            Remark(Advice.OUT_OF_ORDER),
            *((Remark(Advice.FIX_SAMPLES, _samples(inside)),) if slow else ()),
        ),
        facts(("waited while a later batch lay ready", waited_ns, "ns")),
    )


@looks_inside
def slow_samples(case: Case, inside: Inside) -> Answer:
    """A few samples take many times as long as the others."""
    if not inside.stages.slow_samples or isinstance(head_of_line(case), Finding):
        return None
    slow = inside.costs.slow_ns
    comes_again = any(sample.times > 1 for sample in inside.stages.slow_samples)
    most = MOST_SLOW if comes_again else FEW
    if (slow > 0).mean() > most or slow.sum() < CHARGED * inside.costs.fetch_ns.sum():
        return None
    return finding_inside(
        case,
        Rule.SLOW_SAMPLES,
        Remark(Problem.SAMPLES_SLOW, _samples(inside)),
        (Remark(Advice.FIX_SAMPLES, _samples(inside)),),
        facts(
            ("slowest sample", inside.stages.slow_samples[0].longest_ns, "ns"),
            ("typical sample", inside.stages.sample_ns, "ns"),
        ),
    )


@looks_inside
def slow_worker(case: Case, inside: Inside) -> Answer:
    """One worker takes longer for a batch than the others, and not for want of a CPU."""
    slow = inside.slow_worker
    if slow is None or inside.waiting_worker is not None:
        return None
    worker, others_ns = slow
    values = {"worker": worker.worker, "batch_ns": worker.batch_ns, "others_ns": others_ns}
    return finding_inside(
        case,
        Rule.SLOW_WORKER,
        Remark(Problem.WORKER_SLOW, values),
        (Remark(Advice.BALANCE_WORKERS),),
        batches_of(slow),
    )


def batches_of(slow: tuple[WorkerTime, float]) -> tuple[Fact, ...]:
    """What a batch takes in a slow worker, and in the others."""
    worker, others_ns = slow
    return facts(
        ("a batch in this worker", worker.batch_ns, "ns"), ("in the others", others_ns, "ns")
    )


def or_workers(case: Case, inside: Inside) -> tuple[Remark, ...]:
    """Advice to use more workers, if that helps; a rule of its own advises the first ones."""
    return () if case.loads_synchronously else as_many_workers(case, inside)


def as_many_workers(case: Case, inside: Inside) -> tuple[Remark, ...]:
    """Advice to use as many workers as bring the most; none for a log, of which that is unknown."""
    if case.headroom is None:
        return ()
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
    named = [(transform.name, transform.share) for transform in stages.transforms]
    if not named:
        named = [(line.place, line.share) for line in stages.code]
    shares = [("collate", stages.collate_ns / work_ns if work_ns else 0.0), *named]
    shares.sort(key=lambda line: -line[1])
    return facts(*((name, share, "share") for name, share in shares[:MOST_NAMED] if share))


def _samples(inside: Inside) -> dict[str, Value]:
    slow = inside.stages.slow_samples
    shown = sorted(slow, key=lambda sample: (-sample.times, -sample.longest_ns))[:MOST_NAMED]
    return {
        "indices": ", ".join(str(sample.index) for sample in shown),
        "longest_ns": slow[0].longest_ns,
        "typical_ns": inside.stages.sample_ns,
    }


def finding_inside(
    case: Case,
    rule: Rule,
    problem: Remark,
    changes: tuple[Remark, ...],
    evidence: tuple[Fact, ...],
    also_lost: float = 0.0,
    cost: float | None = None,
) -> Answer:
    """The finding, where time is lost, and would be gained without it, or `also_lost` by it.

    Its cost is what a replay gains, unless it is given.
    """
    if case.headroom is not None:
        if case.loss_unknown or not (case.lost or _is_lost_inside(case)):
            return case.loss_unknown
    elif (case.summary.wait_share or 0.0) < MODERATE_SHARE:
        return None
    elif case.ideal is None and (too_few := case.too_few(FEWEST_LOGGED)):
        return too_few
    cost = gain_of(case, rule) if cost is None else cost
    if cost + also_lost < LEAST_GAIN:
        return None
    confidence: Confidence = "likely" if case.lost is None and case.headroom else "measured"
    return Finding(rule, severity_of(cost), confidence, problem, changes, evidence, cost)


def _is_lost_inside(case: Case) -> bool:
    """Whether much is lost by the simulation too, though too few batches waited for an interval."""
    steady = None if case.headroom is None else case.headroom.steady_speedup
    inside = case.inside
    lost = 0.0 if steady is None else lost_share(steady).value
    present = None if inside is None else inside.model.present
    simulated = 0.0 if present is None else 1 - present.costs.step_ns / present.uncalibrated_ns
    return min(lost, simulated) >= 2 * MODERATE_SHARE

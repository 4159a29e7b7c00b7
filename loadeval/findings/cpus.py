"""Who lacks CPUs: steps, workers that wait or are confined, threads, other programs."""

from __future__ import annotations

from loadeval.data.run import ARMS
from loadeval.findings import FEW, LOCK_NS, LOCK_WAIT, MANY_CPUS, MATTERS, MOSTLY, WAITS_FOR_CPU
from loadeval.findings.blocked import one_server
from loadeval.findings.engine import NO_IDEAL, Context, Do, Finding, Set, Skip, rule
from loadeval.findings.workers import balanced, lacks_cpu, slow_worker_of
from loadeval.inside.operators import Threads, operators, threads
from loadeval.model.costs import Change
from loadeval.words import counted, duration, number, share

SWITCH_INTERVAL_NS = 5_000_000
"""Python takes its lock from a thread after this, unless `sys.setswitchinterval` changed it."""
TRAINING_THREAD = "training thread"
FREE_CPUS = Do(
    "free CPUs that other programs use",
    "or measure again while nothing else runs, unless training always shares the machine",
)


@rule(
    "contention",
    source="difference of the steps between the real and the ideal arm",
    of=("contention", "waiting"),
    turn="last",
)
def contention(c: Context) -> Finding | None:
    """Loading takes CPUs, memory bandwidth or the GPU from the step.

    Shown by steps that are slower than with ideal loading, by 5% of the time and beyond chance.
    Excluded by Python's lock, and other findings in as far as what they name is most of what
    loading computes.
    """
    slower, required, left = c.gap.contention, c.gap.required, c.cpus.left
    if slower is None:
        raise Skip(NO_IDEAL)
    if slower.bounds[0] <= 0 or c.contention < MATTERS or c.found(python_lock):
        return None
    do, because = "make loading lighter: cheaper transforms, fewer threads, fewer copies", ""
    why = "loading competes for CPUs, memory bandwidth or the GPU"
    if c.is_rank:
        do = "compare the logs of all ranks: a step waits for the slowest one"
        because = "its own step may be as fast as with ideal loading"
        why = "it waits for ranks whose batches are late, or loading competes with it"
    elif c.cpus.are_busy:
        do = "make transforms cheaper, or move them to the GPU, or give training more CPUs"
        because = f"no CPU is free of the {c.cpus.usable} that training may use"
    elif left is not None and left - (c.cpus.computing or 0.0) >= 1:
        because = "a CPU is free: it is memory bandwidth, Python's lock or the GPU that both need"
    says, cost = f"A step takes {slower:duration} longer while batches are loaded", c.contention
    keeps_up = c.model is not None and required is not None and required.bounds[1] <= 1
    if keeps_up and c.gap.waiting and c.waiting and not c.explains_waiting:
        cost += c.waiting
        says += f", and waits {c.gap.waiting:duration} for a loader that alone keeps up"
    advice = [Do(do, because)]
    of_step, workers, usable = round(c.cpus.training["ideal"] or 0), c.loader.workers, c.cpus.usable
    if of_step > 1 and workers and usable is not None and of_step + workers > usable:
        fewer = max(usable - workers, 1)
        because = (
            f"a step computes with {of_step} threads, which wait for each other where they lack a "
            f"CPU: torch.set_num_threads({fewer}) in the training process"
        )
        advice.insert(0, Do(f"try OMP_NUM_THREADS={fewer}", because))
    return Finding(f"{says}: {why}.", advice, sure=not c.is_rank, cost=cost)


def with_all_cpus(c: Context) -> Change:
    """Workers may use all CPUs, and training too."""
    every = c.cpus.every
    if every is None:
        return Change()
    if c.cpus.workers_differ and slow_worker_of(c) is not None:
        return balanced(c)
    elsewhere = max(every - (c.cpus.usable or every), 0)
    others = max(c.cpus.competing, (c.cpus.others["real"] or 0.0) - elsewhere, 0.0)
    return Change({"cpus": float(every), "others_cpus": others})


@rule(
    "confined workers",
    source="the CPUs that each process may run on (its affinity), and a simulation on all of them",
    undo=with_all_cpus,
    of=("waiting", "contention"),
    turn="first",
)
def confined(c: Context) -> Finding | None:
    """Workers, or one of them, may use fewer CPUs than there are.

    Shown by the affinity of workers, which leaves out CPUs; or of one worker, which is slow and
    waits for a CPU.
    Excluded by a CPU for each worker, plus one for training if it has no other. If the limit was
    there from the start it may be intended, and has no cost.
    """
    use, workers = c.cpus, c.loader.workers
    if not workers:
        return None
    if use.theirs is None or use.every is None:
        raise Skip("the CPUs that workers may run on were not read")
    slow = slow_worker_of(c) if use.workers_differ else None
    let_go, change = "os.sched_setaffinity(0, range(os.cpu_count()))", with_all_cpus(c)
    init = f"worker_init_fn, {c.loader.worker_init}" if c.loader.worker_init else "worker_init_fn"
    if slow is not None and lacks_cpu(c, slow[0]) and c.loses:
        worker, own_ns, others_ns = slow
        because = f"call {let_go} at its end, or take out what set the affinity"
        return Finding(
            f"Worker {worker} takes {duration(own_ns)} a batch, the others {duration(others_ns)}: "
            "it waits for a CPU. One of the workers may use only "
            f"{counted(use.fewest or 1, 'CPU')}, while the others may use {use.theirs}.",
            [Do(f"let workers use all CPUs, in {init}", because, change=change)],
            sure=False,  # which of the workers may use fewer was not read
        )
    # They need one each, and one for training where it may use no other.
    with_training = (use.own or 0) <= (use.shared or 0)
    if use.kept_by is None or workers + with_training <= use.theirs or not c.loses:
        return None
    says = f"{workers} workers may use {use.theirs} of {counted(use.every, 'CPU')}"
    if use.kept_by == "starter":
        says += ". It seems to have been so from the start, and may be intended."
        because = "see taskset, numactl, Slurm's --cpus-per-task and --cpu-bind, mpirun's --bind-to"
        do = Do("start training with more CPUs, if that is not intended", because)
        return Finding(says, [do], sure=False, cost=0.0)
    variables = c.run.header.environment.get("cpu_binding")
    unset = f"; unset {', '.join(variables)}" if variables else ""
    whose, when = "training process after it started", "after the imports, before the first epoch"
    if use.kept_by == "workers":
        whose, when = "workers", f"at the end of {init}"
    do = Do("let workers use all CPUs", f"call {let_go} {when}{unset}", change=change)
    return Finding(f"{says}: something set the affinity of the {whose}.", [do])


@rule(
    "oversubscription",
    source="run-queue time of workers; the warning that PyTorch gives for more of them than CPUs",
    undo=lambda _: Change(
        {"cpus": None, "others_cpus": 0.0},
        lambda costs: costs.replace(run_queue_ns=0 * costs.run_queue_ns),
    ),
    of=("waiting", "contention"),
    turn="first",
)
def oversubscription(c: Context) -> Finding | None:
    """Threads or workers wait for CPUs, or there are more of them than CPUs.

    Shown by workers that are runnable but wait for a CPU during 15% of their work. If that was not
    read, by more workers than CPUs, without a cost. Processes that compute with ideal loading too
    have none where no time is shown to be lost: they slow both arms alike.
    Excluded by `confined workers`, and by idle CPUs: half or more.
    """
    workers, usable, computing = c.loader.workers, c.cpus.usable, c.cpus.computing
    if c.found(confined):
        return None
    if c.model is not None and c.stages.run_queue_ns is not None:
        part = c.stages.run_queue_ns / c.work_ns
        is_told = c.loses or (c.cpus.workers["ideal"] or 0.0) >= MANY_CPUS
        return _waiting_for_cpus(c, part) if part >= WAITS_FOR_CPU and is_told else None
    if workers is None or usable is None:
        what = "loader's number of workers" if workers is None else "number of usable CPUs"
        raise Skip(f"the {what} is not known")
    idle = not c.cpus.are_busy and computing is not None and computing < MOSTLY * usable
    if workers <= usable or idle or c.found(slow_operator):  # then most of them wait for it
        return None
    name = c.setting("num_workers")
    return Finding(
        f"The loader has {workers} workers for {counted(usable, 'CPU')}: they compete for these, "
        "and each uses memory.",
        [Set(name, workers, usable)] if name else [Do(f"use {usable} workers")],
        sure=c.cpus.are_busy,
        cost=0.0,
    )


def _waiting_for_cpus(c: Context, part: float) -> Finding | None:
    """What is said of workers that wait for a CPU for this part of their work."""
    workers, usable, cost = c.loader.workers or 0, c.cpus.usable, None
    pickle = c.stages.share_of("pickle")  # in a thread that each worker has
    beside_ns = (c.stages.other_cpu_ns or 0.0) - (pickle.work_ns if pickle else 0.0)
    # With OMP_NUM_THREADS=1, what does not read it must compute as much as the fetching thread.
    least = 1.0 if c.run.header.environment.get("omp_num_threads") == 1 else MOSTLY
    if workers and beside_ns >= least * (c.stages.cpu_ns or 0.0) > 0:
        because = "torch.set_num_threads(1), cv2.setNumThreads(0), TOKENIZERS_PARALLELISM=false"
        do = Do("try OMP_NUM_THREADS=1: let each worker compute in one thread", because)
    elif c.cpus.competing >= MANY_CPUS:
        do = FREE_CPUS
    elif (idle := c.cpus.workers["ideal"] or 0.0) >= MANY_CPUS:
        because = f"they use {number(idle)} CPUs while nothing is loaded"
        do = Do("free CPUs that other processes of this program use", because)
        # They slow down both, and no simulation knows them.
        cost = c.waiting + c.contention if c.loses else 0.0
    elif c.found(one_server):
        return None  # it is what lacks a CPU, and workers wait for it
    elif usable is not None and workers > usable and (name := c.setting("num_workers")):
        do = Set(name, workers, usable)  # how fast these are is not seen where all are crowded
    else:
        return None  # loading and steps are too much for all CPUs, which others name
    return Finding(
        f"Loading is ready to run but waits for a CPU {share(part)} of its time: more threads "
        "compute than there are CPUs.",
        [do],
        cost=cost,
    )


# Pipelines of threads, and Python's lock


@rule("slow operator", source="task times of the stages by their concurrency, and their queues")
def slow_operator(c: Context) -> Finding | None:
    """One stage of the loader's pipeline keeps the others waiting.

    Shown by a stage of SPDL that is busy 80% of the time.
    """
    report = operators(c.run)
    if report is None or report.bottleneck is None or not c.loses or not c.waiting:
        return None
    slowest = report.bottleneck
    at_once = "one task" if slowest.concurrency == 1 else f"{slowest.concurrency} tasks"
    busy, setting = share(slowest.busy_share or 0.0), c.setting("concurrency") or "concurrency"
    says = f"{slowest.name} works {busy} of the time, on {at_once} at once."
    more = f"raise {setting} of {slowest.name} from {slowest.concurrency}"
    do = [Do(more), Do(f"make {slowest.name} cheaper")]
    # With Python's lock only one of them works at a time.
    return Finding(says, do[1:] if c.found(python_lock) else do, cost=c.waiting)


@rule("Python lock", source="waits for the GIL, in both arms", of=("contention", "waiting"))
def python_lock(c: Context) -> Finding | None:
    """Threads that load in the training process hold Python's lock (GIL), or take it often.

    Shown by a wait for the lock of at least 0.5 ms that is three times that with ideal loading; or
    by a training thread that stops although it has a CPU, for at least half of the steps'
    slow-down.
    Excluded by loading in processes, unless threads beside them compute only while batches are
    loaded, and steps are slower.
    """
    report, slower = threads(c.run, c.ideal), c.gap.contention
    beside = [
        use
        for use in (report.threads if report else ())
        if use.name != TRAINING_THREAD and not use.name.startswith("loadeval")
    ]
    loading_cpus = sum(
        max((use.cpu_cores["real"] or 0.0) - (use.cpu_cores["ideal"] or 0.0), 0.0) for use in beside
    )
    steps_suffer = loading_cpus >= FEW and c.contention >= MATTERS
    in_processes = c.loader.start_method is not None or c.loader.persistent_workers is not None
    if (in_processes or c.loader.workers == 0) and not steps_suffer:
        return None
    if report is None:
        if c.loader.workers is None:
            return None
        raise Skip("the threads of the process were not read")
    if not c.loses or c.loads_on_request:
        return None
    real, ideal = report.lock_wait["real"], report.lock_wait["ideal"]
    read = min(wait.readings if wait else 0 for wait in (real, ideal))
    if real is None or ideal is None or read <= 1:
        few = f"{read} times in an arm, and 2 are needed"
        more = c.run.batches * (2 / max(read, 1) - 1)
        raise Skip(f"the wait for Python's lock was read {few}", max(more, 1))
    held = real.wait_ns >= max(LOCK_NS, LOCK_WAIT * ideal.wait_ns)
    stopped_ns, queued_ns = _longer_ns(c, report)
    often = steps_suffer and slower is not None and stopped_ns >= MOSTLY * slower.value
    if not held and not often:
        return None
    name = beside[0].name if beside else ""
    says = (
        f"Threads that load batches{f' ({name})' * bool(name)} hold Python's lock (GIL): a thread "
        f"waits {duration(real.wait_ns)} for it, and {duration(ideal.wait_ns)} with ideal loading."
    )
    if not held:
        says = (
            f"While threads load batches ({name}), a step stops for {duration(stopped_ns)} longer "
            "than with ideal loading, though it has a CPU: its many short calls wait for Python's "
            "lock (GIL)."
        )
    because = "a DataLoader's num_workers, or SPDL's run_pipeline_in_subprocess"
    do = [
        Do("load in processes instead of threads", because),
        Do("load with functions that release the GIL", "as compiled code can"),
    ]
    if in_processes:
        do = [Do(f"do less with a batch in {name}", "convert and collate in the workers")]
    return Finding(
        says,
        do,
        sure=held and not (slower is not None and queued_ns > MOSTLY * slower.value > 0),
        cost=c.contention + c.waiting * _in_lock(c, report, real.wait_ns),
    )


def _longer_ns(c: Context, report: Threads) -> tuple[float, float]:
    """How much longer than in an ideal step the training thread stops, and waits for a CPU.

    It stops where it neither computes nor waits for a CPU, or for a batch.
    """
    use = next((each for each in report.threads if each.name == TRAINING_THREAD), None)
    stopped_ns, queued_ns = 0.0, 0.0
    if use is None:
        return stopped_ns, queued_ns
    for arm, sign, time in zip(ARMS, (1, -1), (c.gap.real, c.gap.ideal), strict=True):
        time_ns, queued = time.value if time else 0.0, use.run_queue_cores[arm] or 0.0
        stopped_ns += sign * max(1 - (use.cpu_cores[arm] or 0.0) - queued, 0.0) * time_ns
        queued_ns += sign * queued * time_ns
    stopped_ns -= c.gap.waiting.value if c.gap.waiting else 0.0
    is_known = None not in use.cpu_cores.values()
    return max(stopped_ns, 0.0) * is_known, max(queued_ns, 0.0)


def _in_lock(c: Context, report: Threads, wait_ns: float) -> float:
    """The share of the pipeline's work that is waiting for Python's lock; 0 without a pipeline."""
    pipeline = operators(c.run)
    timed = pipeline.operators if pipeline else ()
    run_ns = sum(each.batch_ns or 0.0 for each in timed if each.cpu_ns is not None)
    cpu_ns = sum((each.cpu_ns or 0.0) * each.tasks_per_batch for each in timed)
    if not run_ns:
        return 0.0
    loading = [use for use in report.threads if use.name != TRAINING_THREAD]
    cores = sum(use.cpu_cores["real"] or 0.0 for use in loading)
    queued = sum(use.run_queue_cores["real"] or 0.0 for use in loading)
    queued_ns = cpu_ns * queued / cores if cores else 0.0
    blocked = max(1 - (cpu_ns + queued_ns) / run_ns, 0.0)
    return blocked * min(wait_ns / SWITCH_INTERVAL_NS, 1.0)

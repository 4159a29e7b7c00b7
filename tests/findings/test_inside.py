"""What takes too long of loading a batch, and what blocks workers: what is said, and what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadeval.data.columns import Columns
from loadeval.data.lines import CodeSamples
from loadeval.findings.engine import diagnose
from tests.builder import cores_read
from tests.findings import told
from tests.runs.looked_into import code, looked_into
from tests.runs.tables import replace

FOUR = {"cpus_usable": 4, "cpus": 4}
WORKERS = "num_workers 2 -> 3"


def say(rule: str, seen: dict[str, int] | None = None, **given: Any) -> tuple[str, ...]:
    return told(rule, looked_into(environment=FOUR, seen=code(seen or {}), **given))


def test_slow_transform() -> None:
    """It had better come after one that leaves so much less of a sample."""
    parts: dict[str, Any] = {"transforms": {"Blur": 0.6, "Resize": 0.3}}
    sizes = {"Blur": (1000, 1000), "Resize": (1000, 100)}
    assert say("slow transform", fetch=100, sizes=sizes, **parts)[1] == "call Blur after Resize"
    assert say("slow fetch", {"data.py:31 Photos.__getitem__": 9}, fetch=100, **parts) == ()


@pytest.mark.parametrize(
    ("leaf", "do"),
    [
        (
            "ImageFile.load",
            "decode images smaller (Image.draft), or by a faster decoder: 75.0% of loading",
        ),
        ("parse", "make Photos.read twice as fast: 75.0% of loading"),
    ],
)
def test_slow_fetch(leaf: str, do: str) -> None:
    seen = {f"data.py:31 Photos.read > {leaf}": 75, "data.py:40 Photos.find": 25}
    assert say("slow fetch", seen, fetch=100) == (
        f"75.0% of loading a batch is spent in data.py:31 Photos.read > {leaf}.",
        do,
        "make Photos.find twice as fast: 25.0% of loading",
        WORKERS,
    )


def test_a_function_that_calls_others_has_the_remedy() -> None:
    """Not the one in which it mostly is."""
    at = "data.py:31 Photos.read"
    seen = (
        CodeSamples(0, {f"{at} > _Selector.select": 75}, {}, {f"{at} > pathlib.Path.glob": 75}),
    )
    run = looked_into(environment=FOUR, seen=seen, fetch=100)
    assert told("slow fetch", run)[1] == "list the folder once, in __init__: 100.0% of loading"


def test_what_only_calls_transforms_need_be_no_faster() -> None:
    """Until Python 3.10 it is seen without the name of its class."""
    seen = {"data.py:31 Photos.read": 75, "transforms.py:9 __call__": 25}
    fetched = say("slow fetch", seen, fetch=100, transforms={"Compose.__call__": 0.01})
    assert fetched[1:] == ("make Photos.read twice as fast: 75.0% of loading", WORKERS)


@pytest.mark.parametrize(("opened", "rule"), [(0, "slow fetch"), (4, "data format")])
def test_nothing_is_to_be_opened_once_that_is_open(opened: int, rule: str) -> None:
    at = "data.py:31 Photos.read"
    seen = (CodeSamples(0, {at: 75}, {}, {f"{at} > h5py._hl.files.File.__init__": 75}),)
    run = looked_into(environment=FOUR, seen=seen, fetch=100, opened_files=opened)
    assert rule in {each.rule for each in diagnose(run).findings}


@pytest.mark.parametrize(
    ("made", "says", "do"),
    [
        (
            8,
            (
                "For each sample that is served 2 are made, as many as there are workers: each "
                "makes all, and keeps one in 2."
            ),
            "divide samples among the workers before they are made",
        ),
        (80, "For each sample that is served 20 are made.", "choose samples before they are made"),
        (
            6_000,
            "For each sample that is served 1,500 are made.",
            "choose samples before they are made",
        ),
    ],
)
def test_samples_thrown_away(made: int, says: str, do: str) -> None:
    """The function that makes them need be no faster, but called less often."""
    seen = {"data.py:31 Photos.read": 100}
    given: dict[str, Any] = {"fetch": 100, "loader": {"sampler": None}}
    assert say("samples thrown away", seen, made=made, **given) == (says, do)
    assert say("slow fetch", seen, made=made, **given) == ()
    assert say("samples thrown away", seen, made=4, **given) == ()
    assert say("slow fetch", seen, made=4, **given)
    unseen = ("which functions make the samples was not seen",)
    assert say("samples thrown away", seen, **given) == unseen
    assert say("samples thrown away", seen, made=made, samples=-1, **given) == unseen
    given["loader"] = {"sampler": "RandomSampler"}  # parts of all may be served, as by CutMix
    assert say("samples thrown away", seen, made=made, **given) == ()


@pytest.mark.parametrize(
    ("free_bytes", "fetch", "found"),
    [([30e9, 20e9], 100, True), ([30e9, 19e9], 100, False), ([30e9, 20e9], 5, False)],
)
def test_samples_that_fit_into_memory(free_bytes: list[float], fetch: int, found: bool) -> None:
    """They take half of what is left at most, and to fetch them costs time."""
    run = looked_into(fetch=fetch, loader={"length": 1_000})
    steps = run.steps.replace(nbytes=np.full(run.batches, 10_000_000))
    read = Columns({"time_ns": [1, 2], "memory_available_bytes": free_bytes})
    run = replace(run, steps=steps, readings={("host", "machine"): read})
    says = "If nothing in samples is random, they can be kept in memory: those of an epoch take "
    sizes = "10.0 GB, and 20.0 GB are free."
    assert told("samples fit into memory", run) == ((f"{says}{sizes}",) if found else ())


@pytest.mark.parametrize(
    ("pickled_bytes", "do"),
    [(500, "pin fewer bytes"), (50_000, "send fewer and larger tensors")],
)
def test_pinning(pickled_bytes: int, do: str) -> None:
    """Of few tensors no fewer can be sent."""
    says = "Copying a batch to pinned memory takes 30.0 ms."
    assert say("pinning", fetch=5, pin=30, pickled_bytes=pickled_bytes) == (says, do)


def test_a_batch_is_collated_without_workers_too() -> None:
    says = "The collate function takes 90.0 ms to collate a batch, 90.0% of loading it."
    assert say("slow collate", fetch=10, collate=90, workers=0)[0] == says


@pytest.mark.parametrize(
    ("pickled", "why", "do"),
    [
        (
            500,
            ": handing tensors from one process to another takes time for each, however small.",
            "use larger batches",
        ),
        (
            50_000,
            ", though only 50.0 kB of it are pickled: it has many tensors or objects.",
            "send fewer and larger tensors",
        ),
    ],
)
def test_transfer(pickled: int, why: str, do: str) -> None:
    passed = say("transfer", fetch=5, pickle=10, receive=30, pickled_bytes=pickled)
    says = "Passing a batch from its worker to training takes 40.0 ms"
    assert passed == (f"{says}{why}", do, "num_workers 2 -> 0")
    slow = say("transfer", fetch=70, pickle=10, receive=30, pickled_bytes=pickled)
    assert slow == (f"{says}{why}", do)  # what workers save is more


def test_receiving_that_waits_for_the_lock_of_a_busy_worker() -> None:
    """It lasts until the worker is done. What takes as long whatever that does is no such wait."""
    run = looked_into(fetch=30, receive=25, step=20, pickled_bytes=300)
    assert told("transfer", run)[1] == "use larger batches"
    assert diagnose(run).actions[0].speedup is not None
    times = run.stages
    begun_ns = times.fetch_start_ns.copy()
    begun_ns[2:] = (times.received_ns - times.fetch_ns)[:-2]  # the next one of the same worker
    passed = told("transfer", replace(run, stages=times.replace(fetch_start_ns=begun_ns)))
    assert passed[0].endswith(
        ": most of it is waiting for Python's lock (the GIL) in the worker, which keeps it while "
        "it loads the next batch."
    )
    assert passed[1] == "call torch.multiprocessing.set_sharing_strategy('file_system')"


@pytest.mark.parametrize(
    ("opened", "because"),
    [
        (0, "hold it for a shorter time, or give each worker a copy"),
        (4, "open the file or database once in each worker, or hold it for a shorter time"),
    ],
)
def test_where_no_file_is_opened_nothing_is_to_be_opened_once(opened: int, because: str) -> None:
    seen = code({"data.py:1 f": 25}, {"data.py:1 f > flock_lock_inode_wait": 75})
    run = looked_into(fetch=60, blocked=0.75, seen=seen, opened_files=opened)
    (found,) = (each for each in diagnose(run).findings if each.rule == "lock")
    assert found.do[0].because == because


@pytest.mark.parametrize(
    ("leaf", "blocked", "rule"),
    [
        ("Connection._recv", 0.75, "one process serves all"),
        ("_ForkingPickler.loads", 0.1, "one process serves all"),  # they unpickle what it sends
        ("Redis.get", 0.75, "storage latency"),
    ],
)
def test_a_process_that_serves_all_workers(leaf: str, blocked: float, rule: str) -> None:
    """More workers are not advised, as they are where storage is waited for."""
    running, waiting = f"data.py:1 f > {leaf}", "data.py:1 f > unix_stream_read_generic"
    seen = code({running: round(100 * (1 - blocked))}, {waiting: round(100 * blocked)})
    run = looked_into(fetch=100, blocked=blocked, seen=seen, environment=FOUR)
    diagnosis = diagnose(run)
    found = {each.rule for each in diagnosis.findings}
    assert {"one process serves all", "storage latency", "slow fetch"} & found == {rule}
    assert ("num_workers" in str(diagnosis.actions)) is (rule == "storage latency")
    own = {"data.py:1 f > multiprocessing.connection._ConnectionBase.recv": 100}
    asks_its_own = replace(run, code=tuple(replace(each, calls=own) for each in seen))
    assert told("one process serves all", asks_its_own) == ()


@pytest.mark.parametrize(
    ("loopback", "children", "others", "rule"),
    [
        (0.9, 1.3, 0.0, "one process serves all"),
        (0.9, 0.6, 0.9, "one process serves all"),  # training did not start it
        (0.1, 1.3, 0.0, "storage latency"),  # the bytes come from elsewhere
        (0.9, 0.6, 0.0, "storage latency"),  # who answers hardly computes: it waits, too
    ],
)
def test_a_server_on_this_machine_that_computes(
    loopback: float, children: float, others: float, rule: str
) -> None:
    """Its workers need no CPUs that it lacks, and are to ask for more at once."""
    seen = code({"data.py:1 f": 15}, {"data.py:1 f > sk_wait_data": 85})
    run = looked_into(
        workers=4, fetch=200, blocked=0.6, run_queue=0.3, seen=seen, environment={"cpus_usable": 2}
    )
    machine = (0.3 + children + others, 1.0)
    run = cores_read(run, process=(0.3, 1.0), workers=(children, 0.0), machine=machine)
    key, rate = ("host", "machine"), np.full(2000, 1e6)
    received = {"received_bytes_per_s": rate, "loopback_bytes_per_s": loopback * rate}
    read = run.readings[key].replace(**received)
    diagnosis = diagnose(replace(run, readings={**run.readings, key: read}))
    found = {each.rule for each in diagnosis.findings}
    assert {"one process serves all", "storage latency"} & found == {rule}
    assert ("num_workers 4 -> 2" in str(diagnosis.actions)) is (rule == "storage latency")


@pytest.mark.parametrize(("sampler", "says"), [(None, True), ("Mine", False)])
def test_more_workers_of_a_stream_serve_each_its_own_part(sampler: str | None, says: bool) -> None:
    run = looked_into(fetch=200, loader={"sampler": sampler}, environment=FOUR)
    (action,) = (each for each in diagnose(run).actions if each.setting == "num_workers")
    assert ("serve its own part" in action.because) is says


def test_a_sample_that_is_slow_again_is_named_where_no_time_is_shown_to_be_lost() -> None:
    """It is found without a cost, and nothing is predicted."""
    is_slow = np.arange(100) % 40 == 30
    run = looked_into(
        workers=1,
        fetch=np.where(is_slow, 200, 5),
        slowest=np.where(is_slow, 190, 1),
        slowest_index=np.where(is_slow, 4711, 3),
        environment=FOUR,
    )
    run = replace(run, steps=run.steps.replace(wait_ns=np.zeros(len(run.steps), np.int64)))
    (found,) = (each for each in diagnose(run).findings if each.rule == "slow samples")
    assert found.says.endswith("those with index 4711.")
    assert (found.cost, found.sure, found.do[0].change) == (None, False, None)


def test_advice_on_few_shards_names_what_makes_more() -> None:
    """As the adapter of the stream's library tells; here all that two of four workers load."""
    loader = {"workers": 4, "prefetch_depth": 8, "setting_names": {"num_shards": "split(parts=4)"}}
    found = diagnose(looked_into(fetch=60, loader=loader)).findings
    (finding,) = (each for each in found if each.rule == "few shards")
    assert finding.do[0].because.startswith("of equal size, by split(parts=4); ")

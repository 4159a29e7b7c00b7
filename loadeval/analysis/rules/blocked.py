"""Workers that are blocked: by a lock, the disk, storage, or the network's latency or bandwidth."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.inside.stages import FUTEX, Blockage, blockage_of
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.finding import Advice, Problem, Rule, facts
from loadeval.analysis.rules.inside import DOMINATES
from loadeval.analysis.rules.stages import finding_inside, looks_inside, or_workers
from loadeval.data.columns import UNKNOWN

if TYPE_CHECKING:
    from loadeval.analysis.inside.stages import StageReport
    from loadeval.analysis.remark import Value
    from loadeval.analysis.rules.case import Answer, Case
    from loadeval.analysis.rules.inside import Inside
    from loadeval.data.run import Run

OF_BLOCKAGE = {
    Blockage.LOCK: Rule.LOCK,
    Blockage.DISK: Rule.DISK,
    Blockage.OTHER: Rule.STORAGE_LATENCY,
}
NO_PLACE, NO_KERNEL = "a place not seen", "not known"
"""In place of the line where loading is blocked, and of the kernel's function."""
SOCKETS = ("sk_wait", "inet_", "tcp_", "wait_woken")
"""How Linux names the places where a process waits for the network."""
CLIENTS = re.compile(
    r"(http\.client|urllib|urllib3|requests|httpx|aiohttp|socket|ssl|botocore|boto3|s3fs|gcsfs"
    r"|adlfs|fsspec|google\.cloud|azure|obstore|huggingface_hub)\..+|(.+\.)?recv(_into|from)?"
)
"""Functions that wait for the network, by their full names."""
SLOWEST_STREAM_BYTES_PER_NS = 0.02
"""Who waits for so few bytes in a second, 20 MB, waits for answers rather than for bytes.

One connection to an object store brings 50 to 100 MB/s once bytes flow.
"""
NEW_CONNECTIONS = 0.5
"""From so many new ones for a sample on, connections are not kept."""
MOST_REQUESTS = 8
"""So many requests at once are advised at most in a worker."""


@looks_inside
def lock(case: Case, inside: Inside) -> Answer:
    """Workers wait for a lock that they share."""
    return _blocked(case, inside, Rule.LOCK, Problem.WORKERS_WAIT_FOR_LOCK, Advice.SHORTER_LOCK)


@looks_inside
def disk(case: Case, inside: Inside) -> Answer:
    """The data comes from the disk, not from the page cache."""
    return _blocked(case, inside, Rule.DISK, Problem.READ_FROM_DISK, Advice.READ_LESS)


@looks_inside
def storage_latency(case: Case, inside: Inside) -> Answer:
    """Workers wait for storage, the network or another process."""
    return _blocked(
        case, inside, Rule.STORAGE_LATENCY, Problem.WORKERS_BLOCKED, Advice.MORE_REQUESTS_AT_ONCE
    )


def _blocked(case: Case, inside: Inside, rule: Rule, problem: Problem, advice: Advice) -> Answer:
    if not inside.mostly_blocked or inside.collates or inside.tokenises:
        return None
    line, workers = inside.stages.blocked_line, inside.setting.workers
    if OF_BLOCKAGE[blockage_of(inside.stages, workers, inside.recorded.blocked)] != rule:
        return None
    values: dict[str, Value] = {
        "share": inside.recorded.blocked,
        "place": line.place if line else NO_PLACE,
    }
    values["kernel"] = line.blocked_in if line and line.blocked_in else NO_KERNEL
    if rule == Rule.DISK:
        values["disk_bytes"] = inside.stages.disk_bytes
    if rule == Rule.STORAGE_LATENCY and FUTEX in str(values["kernel"]):
        problem = Problem.THREADS_AWAITED if inside.stages.awaits_threads else problem
    cause = Remark(problem, values)
    changes: tuple[Remark, ...] = (Remark(advice),)
    if rule == Rule.STORAGE_LATENCY:
        cause, changes = _network_wait(case, inside, str(values["place"])) or (cause, changes)
        more = or_workers(case, inside) if cause.code != Problem.NETWORK_BANDWIDTH else ()
        changes = (*(change for change in more if change.code == Advice.RAISE), *changes)
    return finding_inside(
        case,
        rule,
        cause,
        changes,
        facts(
            ("blocked", inside.recorded.blocked, "share"),
            ("read in a batch", inside.stages.read_bytes, "bytes"),
            ("from the disk in a batch", inside.stages.disk_bytes, "bytes"),
            ("new connections for a sample", inside.stages.connections, "connections"),
            ("HTTP requests for a sample", inside.stages.requests, "requests"),
        ),
    )


def _network_wait(
    case: Case, inside: Inside, place: str
) -> tuple[Remark, tuple[Remark, ...]] | None:
    """What workers wait for, at `place`, and what to change; None where it is not the network.

    It is none, too, where nobody read how many bytes the machine received.
    """
    stages, line = inside.stages, inside.stages.blocked_line
    in_client = sum(call.share for call in stages.calls if CLIENTS.fullmatch(call.function))
    in_socket = line is not None and line.blocked_in.startswith(SOCKETS)
    if not in_socket and in_client < DOMINATES:
        return None
    loaded = case.real.stages
    counted = loaded.samples[loaded.samples > 0]
    received_bytes = _received(case.real)
    if received_bytes is None or not len(counted):
        return None
    samples, batch_bytes = float(counted.mean()), received_bytes / len(loaded)
    blocked_ns = inside.recorded.blocked * stages.fetch_ns
    values: dict[str, Value] = {
        "share": inside.recorded.blocked,
        "place": place,
        "batch_bytes": batch_bytes,
        "bytes_per_s": 1e9 * batch_bytes / inside.recorded.measured_ns,
    }
    if batch_bytes >= SLOWEST_STREAM_BYTES_PER_NS * blocked_ns:
        return Remark(Problem.NETWORK_BANDWIDTH, values), (Remark(Advice.FETCH_LESS),)
    values |= {"sample_ns": blocked_ns / samples, "sample_bytes": batch_bytes / samples}
    requests = int(min(samples, MOST_REQUESTS))
    one_by_one = bool((loaded.slowest_ns != UNKNOWN).any())
    at_once = (Remark(Advice.REQUESTS_AT_ONCE, {"requests": requests}),)
    return Remark(Problem.NETWORK_LATENCY, values), (
        *_kept_connection(stages),
        *(at_once if one_by_one and requests > 1 else ()),
        Remark(Advice.CACHE_LOCALLY),
    )


def _kept_connection(stages: StageReport) -> tuple[Remark, ...]:
    """To keep connections, which take a round trip each, as a request does, or more with TLS."""
    connections = stages.connections
    if connections is None or connections < NEW_CONNECTIONS:
        return ()
    round_trips = 1 + connections / max(stages.requests or 0.0, connections)
    values: dict[str, Value] = {"connections": connections, "round_trips": round_trips}
    return (Remark(Advice.KEEP_CONNECTION, values),)


def _received(run: Run) -> float | None:
    """The bytes that the machine received while it was read; None where that was not known."""
    for readings in run.readings.values():
        if "received_bytes_per_s" not in readings:
            continue
        rates = readings.received_bytes_per_s
        if not np.isnan(rates).all():
            seconds = float(readings.time_ns[-1] - readings.time_ns[0]) / 1e9
            return float(np.nanmean(rates)) * seconds
    return None

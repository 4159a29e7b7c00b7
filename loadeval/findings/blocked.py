"""Workers that are blocked: by a lock, the disk, storage, or the network's latency or bandwidth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from loadeval.findings.engine import (
    BLOCKED,
    DOMINATES,
    Context,
    Do,
    Finding,
    Set,
    found_by,
    rule,
)
from loadeval.findings.inside import collates, tokenises, waits_for_workers, without
from loadeval.findings.workers import few_shards, more_workers
from loadeval.inside.code import FUTEX, awaits_threads, blockage
from loadeval.model.changes import Change
from loadeval.words import duration, share, size

KERNEL = "on-CPU, run-queue and blocked time of the workers, as the kernel counts it"
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


def by(c: Context) -> str | None:
    """What blocks workers that training waits for; None where collating or tokenising is named."""
    if not waits_for_workers(c) or c.blocked < BLOCKED or collates(c) or tokenises(c):
        return None
    return blockage(c.stages, c.loader.workers or 0, c.blocked)


def _place(c: Context) -> str:
    line = c.stages.blocked_line
    return line.place if line else "a place not seen"


def _facts(c: Context) -> Mapping[str, Any]:
    inside = c.stages
    facts = {
        "read for a batch, bytes": inside.read_bytes,
        "of it from the disk, bytes": inside.disk_bytes,
        "new connections a sample": inside.connections and f"{inside.connections:.3g}",
        "HTTP requests a sample": inside.requests and f"{inside.requests:.3g}",
    }
    return {name: value for name, value in facts.items() if value}


def unblocked(_: Context) -> Change:
    """Workers are never blocked."""
    return without("blocked_ns", "read_ns")


@rule("lock", source=KERNEL, undo=unblocked)
def lock(c: Context) -> Finding | None:
    """Workers wait for a lock that they share, of a file or a database say.

    Shown by workers that are blocked for 40% of their work where the kernel names a lock, or that
    work one at a time.

    Excluded by a lock that threads of the same worker hold, and a disk, where 30% of the bytes come
    from it.
    """
    if by(c) != "lock":
        return None
    line = c.stages.blocked_line
    kernel = line.blocked_in if line and line.blocked_in else "not known"
    because = "open the file or database once in each worker, or hold it for a shorter time"
    if c.stages.opened_files == 0:  # each may have its own already
        because = "hold it for a shorter time, or give each worker a copy"
    return Finding(
        f"Workers are blocked {share(c.blocked)} of their time by a lock that they share, at "
        f"{_place(c)} ({kernel}).",
        [Do("do not share the lock", because, _place(c), unblocked(c))],
        _facts(c),
    )


@rule("disk", source=KERNEL, undo=unblocked)
def disk(c: Context) -> Finding | None:
    """The data is read from the disk, not from the page cache.

    Shown by workers that are blocked for 40% of their work where the kernel names the disk, or 30%
    of the bytes come from it.
    """
    if by(c) != "disk":
        return None
    because = (
        "smaller or compressed files, few large files read in order, or enough memory to keep the "
        "data in the page cache"
    )
    much = f": {size(c.stages.disk_bytes)} a batch" if c.stages.disk_bytes else ""
    return Finding(
        f"The data is read from the disk, not from the page cache{much}. Loading is blocked "
        f"{share(c.blocked)} of its time.",
        [Do("read less, or from a faster disk", because, change=unblocked(c))],
        _facts(c),
    )


@rule("storage latency", source=KERNEL, undo=unblocked)
def storage_latency(c: Context) -> Finding | None:
    """Workers wait for storage, the network, another process, or threads of their own.

    Shown by workers that are blocked for 40% of their work, and not by a lock or the disk; by the
    network where the kernel or the functions called say so.

    Excluded by a collate function or tokeniser that takes 40%, and workers that have no shard.
    """
    if by(c) != "other" or found_by(few_shards, c) is not None:
        return None
    network = _network(c)
    if network is not None:
        return network
    line, slow = c.stages.blocked_line, "storage, the network or another process is slow to answer"
    says = (
        f"Loading is blocked {share(c.blocked)} of its time, neither on a CPU nor waiting for one, "
        f"at {_place(c)}: {slow}."
    )
    if line is not None and FUTEX in line.blocked_in and awaits_threads(c.stages):
        says = (
            f"Loading waits {share(c.blocked)} of its time for threads of the same worker, at "
            f"{_place(c)}, which hardly compute meanwhile: {slow} them."
        )
    because = "blocked workers need no CPU, so more than there are CPUs help too; or a cache nearby"
    more = Do("ask for twice as much at once", because, _place(c), _shorter(2))
    return Finding(says, [*more_workers(c), more], _facts(c))


def _network(c: Context) -> Finding | None:
    """What is known of the network that is waited for; None where it is not the network.

    It is none, too, where nobody read how many bytes the machine received.
    """
    inside, line = c.stages, c.stages.blocked_line
    in_client = sum(call.share for call in inside.calls if CLIENTS.fullmatch(call.function))
    in_socket = line is not None and line.blocked_in.startswith(SOCKETS)
    if not in_socket and in_client < DOMINATES:
        return None
    counted = c.run.stages.samples[c.run.stages.samples > 0]
    received = _received(c)
    if received is None or not len(counted) or c.gap.real is None:
        return None
    samples, batch_bytes = float(counted.mean()), received / len(c.run.stages)
    blocked_ns = c.blocked * inside.fetch_ns
    if batch_bytes >= SLOWEST_STREAM_BYTES_PER_NS * blocked_ns:
        because = "compressed or smaller samples, only the parts that are used, a cache nearby"
        return Finding(
            f"Loading waits for the network {share(c.blocked)} of its time, for "
            f"{size(batch_bytes)} a batch ({size(1e9 * batch_bytes / c.gap.real.value)}/s), at "
            f"{_place(c)}: that is bandwidth more than latency.",
            [Do("fetch fewer bytes", because, _place(c), unblocked(c))],
            _facts(c),
        )
    do: list[Set | Do] = list(more_workers(c))
    connections = inside.connections
    if connections is not None and connections >= NEW_CONNECTIONS:
        trips = 1 + connections / max(inside.requests or 0.0, connections)
        because = (
            f"by a session or a pool: {connections:.3g} new ones for a sample, each a round trip"
        )
        do.append(Do("keep connections open in each worker", because, _place(c), _shorter(trips)))
    requests = int(min(samples, MOST_REQUESTS))
    if requests > 1 and (c.run.stages.slowest_ns >= 0).any():  # they are asked for one by one
        because = "__getitems__(indices) with a thread pool in each worker"
        do.append(Do(f"ask for {requests} samples at once", because, _place(c), _shorter(requests)))
    do.append(Do("keep the data on a local disk, or read shards of many samples"))
    return Finding(
        f"Each sample waits {duration(blocked_ns / samples)} for the network, for "
        f"{size(batch_bytes / samples)}, at {_place(c)}: that is latency, not bandwidth. "
        f"Loading is blocked {share(c.blocked)} of its time.",
        do,
        _facts(c),
    )


def _shorter(times: float) -> Change:
    return Change(costs=lambda costs: costs.replace(blocked_ns=costs.blocked_ns / times))


def _received(c: Context) -> float | None:
    """The bytes that the machine received while it was read; None where that was not known."""
    for table in c.run.readings.values():
        rates = table.get("received_bytes_per_s", np.empty(0))
        if len(rates) and not np.isnan(rates).all():
            seconds = float(table.time_ns[-1] - table.time_ns[0]) / 1e9
            return float(np.nanmean(rates)) * seconds
    return None

"""Workers that are blocked: by a lock, the disk, storage, or the network's latency or bandwidth."""

from __future__ import annotations

import re

import numpy as np

from loadeval.data.run import host_values
from loadeval.findings import BLOCKED, DOMINATES, MANY_CPUS, MOSTLY, STREAM_BYTES_PER_NS, TWICE
from loadeval.findings.engine import Context, Do, Finding, rule
from loadeval.findings.inside import (
    asks_a_process,
    collates,
    less,
    shorter,
    tokenises,
    waits_for_workers,
    without,
)
from loadeval.findings.workers import few_shards, more_workers
from loadeval.inside.stages import FUTEX, awaits_threads, blockage
from loadeval.words import duration, number, share, size

KERNEL = "on-CPU, run-queue and blocked time of the workers, as the kernel counts it"
SOCKETS = ("sk_wait", "inet_", "tcp_", "wait_woken")
"""How Linux names the places where a process waits for the network."""
CLIENTS = re.compile(
    r"(http\.client|urllib|urllib3|requests|httpx|aiohttp|socket|ssl|botocore|boto3|s3fs|gcsfs"
    r"|adlfs|fsspec|google\.cloud|azure|obstore|huggingface_hub)\..+|(.+\.)?recv(_into|from)?"
)
"""Functions that wait for the network, by their full names."""
UNBLOCKED = without("blocked_ns", "read_ns")


def by(c: Context) -> str | None:
    """What blocks workers that training waits for; None where collating or tokenising is named.

    A process that they ask by a pipe does, also where they mostly unpickle what it sends; and one
    that they ask over this machine's own network, if it computes.
    """
    if asks_a_process(c):
        return "server"
    if not waits_for_workers(c) or c.blocked < BLOCKED or collates(c) or tokenises(c):
        return None
    by_kernel = blockage(c.stages, c.loader.workers or 0, c.blocked)
    is_served = c.stages.blocked_line is not None and served_cpus(c) >= MANY_CPUS
    return "server" if by_kernel == "other" and is_served else by_kernel


def awaits_network(c: Context) -> bool:
    """Whether workers are blocked by the network, as the kernel or the functions called say."""
    in_client = sum(call.share for call in c.stages.calls if CLIENTS.fullmatch(call.function))
    return place_of(c)[0].startswith(SOCKETS) or in_client >= DOMINATES


def served_cpus(c: Context) -> float:
    """The CPUs on which others compute while workers load over this machine's own network.

    0 where most bytes come from other machines, or may be those of other ranks.
    """
    of_all, own = (
        host_values(c.run, "machine", f"{name}_bytes_per_s").sum()
        for name in ("received", "loopback")
    )
    real, inside, children = c.gap.real, c.stages, c.cpus.computing
    own /= 2  # questions and answers both come over it
    if real is None or not awaits_network(c) or own <= MOSTLY * (of_all - own) or c.is_rank:
        return 0.0
    by_loader = ((inside.cpu_ns or 0.0) + (inside.other_cpu_ns or 0.0)) / real.value
    served = (children or 0.0) - by_loader - (c.cpus.workers["ideal"] or 0.0)
    busy, idle = c.cpus.others["real"], c.cpus.others["ideal"]  # a server may be no child
    return served if busy is None or idle is None else served + busy - idle


def place_of(c: Context) -> tuple[str, str | None, str]:
    """Where workers are blocked most: as the kernel names it, the line of the program, in words."""
    line = c.stages.blocked_line
    return (line.blocked_in, line.place, line.place) if line else ("", None, "a place not seen")


@rule("lock", source=KERNEL, undo=lambda _: UNBLOCKED)
def lock(c: Context) -> Finding | None:
    """Workers wait for a lock that they share, of a file or a database say.

    Shown by workers that are blocked for 40% of their work where the kernel names a lock, or that
    work one at a time.
    Excluded by a lock that threads of the same worker hold, and a disk, where 30% of the bytes come
    from it.
    """
    if by(c) != "lock":
        return None
    kernel, place, seen_at = place_of(c)
    because = "open the file or database once in each worker, or hold it for a shorter time"
    if c.opens_no_file:  # each may have its own already
        because = "hold it for a shorter time, or give each worker a copy"
    return Finding(
        f"Workers are blocked {share(c.blocked)} of their time by a lock that they share, at "
        f"{seen_at} ({kernel}).",
        [Do("do not share the lock", because, place, UNBLOCKED)],
    )


@rule("disk", source=KERNEL, undo=lambda _: UNBLOCKED)
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
        [Do("read less, or from a faster disk", because, change=UNBLOCKED)],
    )


@rule(
    "one process serves all",
    source=KERNEL,
    undo=lambda c: less(asks_a_process(c) or c.stages.blocked_line),
)
def one_server(c: Context) -> Finding | None:
    """One process answers all workers, such as a Manager's, or a server on this machine.

    Shown by workers that are seen for 40% of their work in a function that asks it by a pipe of
    multiprocessing, or are blocked for 40% of it, mostly there; or that are blocked so long by the
    network, if most bytes come from this machine, and half a CPU or more computes beside them.
    Excluded by a disk, or a lock, and a collate function that takes 40%.
    """
    line = (asks_a_process(c) or c.stages.blocked_line) if by(c) == "server" else None
    if line is None:
        return None
    do = "let workers read the data themselves"
    because = "a tensor in shared memory (share_memory_()), a file that they map, or copies"
    which = "one behind a pipe, such as a Manager's, which pickles what it is asked for each time"
    if (cpus := served_cpus(c)) >= MANY_CPUS:
        do, because = "ask for a whole batch in one request", f"in __getitems__(indices); or {do}"
        which = f"a server on this machine, which computes on {number(cpus)} CPUs meanwhile"
    return Finding(
        f"Workers are held up {share(line.share)} of their time, at {line.place}, by one process "
        f"that serves them all: {which}. More workers would only wait longer.",
        [Do(do, because, line.place, less(line))],
    )


@rule("storage latency", source=KERNEL, undo=lambda _: UNBLOCKED)
def storage_latency(c: Context) -> Finding | None:
    """Workers wait for storage, the network, another process, or threads of their own.

    Shown by workers that are blocked for 40% of their work, and not by a lock or the disk; by the
    network where the kernel or the functions called say so.
    Excluded by a collate function or tokeniser that takes 40%, and workers that have no shard.
    """
    if by(c) != "other" or c.found(few_shards):
        return None
    if (network := _network(c)) is not None:
        return network
    kernel, place, seen_at = place_of(c)
    slow = "storage, the network or another process is slow to answer"
    says = (
        f"Loading is blocked {share(c.blocked)} of its time, neither on a CPU nor waiting for one, "
        f"at {seen_at}: {slow}."
    )
    if FUTEX in kernel and awaits_threads(c.stages):
        says = (
            f"Loading waits {share(c.blocked)} of its time for threads of the same worker, at "
            f"{seen_at}, which hardly compute meanwhile: {slow} them."
        )
    because = "workers that wait need no CPU, so have more of them than CPUs; or use a cache nearby"
    more = Do("ask for twice as much at once", because, place, shorter(TWICE, "blocked_ns"))
    return Finding(says, [*more_workers(c), more])


def _network(c: Context) -> Finding | None:
    """What is known of the network that is waited for; None where it is not the network.

    It is none, too, where nobody read how many bytes the machine received.
    """
    inside, (_, place, seen_at) = c.stages, place_of(c)
    counted = c.run.stages.samples[c.run.stages.samples > 0]
    rates = host_values(c.run, "machine", "received_bytes_per_s")
    if not awaits_network(c) or not len(rates) or not len(counted) or c.gap.real is None:
        return None
    received = rates.mean() * np.ptp(c.run.readings["host", "machine"].time_ns) / 1e9
    samples, batch_bytes = counted.mean(), received / len(c.run.stages)
    blocked_ns = c.blocked * inside.fetch_ns
    if batch_bytes >= STREAM_BYTES_PER_NS * blocked_ns:
        because = "compressed or smaller samples, only the parts that are used, a cache nearby"
        return Finding(
            f"Loading waits for the network {share(c.blocked)} of its time, for "
            f"{size(batch_bytes)} a batch ({size(1e9 * batch_bytes / c.gap.real.value)}/s), at "
            f"{seen_at}: that is bandwidth more than latency.",
            [Do("fetch fewer bytes", because, place, UNBLOCKED)],
        )
    do, connections = more_workers(c), inside.connections or 0.0
    if connections >= MOSTLY:  # they are not kept
        change = shorter(1 + connections / max(inside.requests or 0.0, connections), "blocked_ns")
        because = f"{connections:.3g} new ones for a sample, each a round trip: a session or a pool"
        do.append(Do("keep connections open in each worker", because, place, change))
    requests = int(min(samples, 8))  # at once, in a worker: more are hard on a server
    if requests > 1 and (c.run.stages.slowest_ns >= 0).any():  # they are asked for one by one
        because = "__getitems__(indices) with a thread pool in each worker"
        change = shorter(requests, "blocked_ns")
        do.append(Do(f"ask for {requests} samples at once", because, place, change))
    do.append(Do("keep the data on a local disk, or read shards of many samples"))
    return Finding(
        f"Each sample waits {duration(blocked_ns / samples)} for the network, for "
        f"{size(batch_bytes / samples)}, at {seen_at}: that is latency, not bandwidth. "
        f"Loading is blocked {share(c.blocked)} of its time.",
        do,
    )

"""What takes too long of loading a batch, and what blocks workers: what is said, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.findings import told
from tests.runs.looked_into import code, looked_into

FOUR = {"cpus_usable": 4, "cpus": 4}
WORKERS = "num_workers 2 -> 3"


def say(rule: str, seen: dict[str, int] | None = None, **given: Any) -> tuple[str, ...]:
    return told(rule, looked_into(environment=FOUR, seen=code(seen or {}), **given))


def test_slow_transform() -> None:
    """It had better come after one that leaves so much less of a sample."""
    parts: dict[str, Any] = {"transforms": {"Blur": 0.6, "Resize": 0.3}}
    sizes = {"Blur": (1000, 1000), "Resize": (1000, 100)}
    assert say("slow transform", fetch=100, sizes=sizes, **parts) == (
        "Blur takes 60.0% of loading a batch: 15.0 ms a call, 4 calls a batch.",
        "call Blur after Resize",
        "make Blur twice as fast",
        WORKERS,
    )
    assert say("slow fetch", {"data.py:31 Photos.__getitem__": 9}, fetch=100, **parts) == ()


@pytest.mark.parametrize(
    ("leaf", "do"),
    [
        ("ImageFile.load", "decode images faster: 75.0% of loading"),
        ("Image.resize", "resize faster: 75.0% of loading"),
        ("parse", "make Photos.read twice as fast: 75.0% of loading"),
    ],
)
def test_slow_fetch(leaf: str, do: str) -> None:
    """The remedy is that of the library function."""
    seen = {f"data.py:31 Photos.read > {leaf}": 75, "data.py:40 Photos.find": 25}
    assert say("slow fetch", seen, fetch=100) == (
        f"75.0% of loading a batch is spent in data.py:31 Photos.read > {leaf}.",
        do,
        "make Photos.find twice as fast: 25.0% of loading",
        WORKERS,
    )


def test_slow_collate() -> None:
    """It is named where it was seen."""
    seen = {"data.py:50 padded": 70}
    assert say("slow collate", seen, fetch=30, collate=70) == (
        "padded takes 70.0 ms to collate a batch, 70.0% of what a worker does.",
        "make collate_fn twice as fast",
        WORKERS,
    )
    assert say("slow collate", seen, fetch=70, collate=30) == ()


def test_tokenising() -> None:
    seen = {"data.py:31 __getitem__ > tokenizer.encode": 70}
    assert say("tokenising", seen, fetch=100) == (
        "100.0% of loading a batch is tokenising, in data.py:31 __getitem__ > tokenizer.encode.",
        "tokenise once, before training",
        WORKERS,
    )


@pytest.mark.parametrize(
    ("pickled", "why", "do"),
    [
        (
            20_000_000,
            ": 20.0 MB of it go through a pipe, as all that is not a tensor does.",
            "return tensors from the workers, not arrays",
        ),
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


def test_slow_sampler_and_pinning() -> None:
    assert say("slow sampler", fetch=5, index=30, step=10) == (
        (
            "The training process spends 30.0 ms a batch on the sampler, which chooses what is "
            "loaded next."
        ),
        "make the sampler twice as fast",
    )
    assert say("pinning", fetch=5, pin=30, step=10) == (
        "Copying a batch to pinned memory takes 30.0 ms.",
        "send fewer and larger tensors",
    )


@pytest.mark.parametrize(
    ("rule", "kernel", "says", "do"),
    [
        (
            "lock",
            "flock_lock",
            (
                "Workers are blocked 80.0% of their time by a lock that they share, at data.py:31 "
                "read (flock_lock)."
            ),
            ("do not share the lock",),
        ),
        (
            "disk",
            "folio_wait",
            (
                "The data is read from the disk, not from the page cache. Loading is blocked 80.0% "
                "of its time."
            ),
            ("read less, or from a faster disk",),
        ),
        (
            "storage latency",
            "sk_wait_data",
            (
                "Loading is blocked 80.0% of its time, neither on a CPU nor waiting for one, at "
                "data.py:31 read: storage, the network or another process is slow to answer."
            ),
            ("num_workers 2 -> 6", "ask for twice as much at once"),
        ),
    ],
)
def test_blocked_workers(rule: str, kernel: str, says: str, do: tuple[str, ...]) -> None:
    seen = code({"data.py:31 read": 20}, {f"data.py:31 read > {kernel}": 80})
    run = looked_into(fetch=100, blocked=0.8, seen=seen, environment=FOUR)
    assert told(rule, run) == (says, *do)
    assert told("slow fetch", run) == ()

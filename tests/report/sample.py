"""A report with every kind of block and chart, of a run like the demo's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns
from loadeval.estimate.stats import Estimate
from loadeval.report.blocks import (
    Bars,
    Chart,
    Facts,
    Findings,
    FindingText,
    Number,
    Section,
    Table,
    Text,
)

MS = 1e6
FOLDER = "/home/user/projects/vision/experiments/2026-11"


def ms(value: float, low: float | None = None, high: float | None = None) -> Number:
    ends = (None if end is None else end * MS for end in (low, high))
    return Number(Estimate(value * MS, *ends), "duration")


def times(*value: float) -> Number:
    return Number(Estimate(*value), "times")


def share(*value: float) -> Number:
    return Number(Estimate(*value), "share")


def rate(*value: float) -> Number:
    return Number(Estimate(*value), "images/s")


SPEEDUP = times(2.28, 2.22, 2.33)
HEADLINE = Section(
    "Data loading is the bottleneck: training would be 2.28x [2.22x, 2.33x] as fast if loading "
    "were free.",
    priority=1,
)
PARTS = {"step": 21.3, "waiting": 18.6, "contention": 4.12, "epoch starts": 4.45}
REAL = {name: taken * MS for name, taken in PARTS.items()}
BARS = Bars([("real", REAL), ("ideal", {"step": REAL["step"]})])
BATCH = Section("A batch's time", [BARS], 2)
CHANGES = [
    ("1. num_workers=3", "run.py:90", times(1.37, 1.26, 1.47)),
    ("2. make shrink twice as fast", "run.py:126", times(1.65, 1.45, 1.83)),
    ("3. torch.set_num_threads(1) in the training process", "run.py:12", times(1.73, 1.5, 1.92)),
    ("4. find what slows a few batches", "-", Number(None, "times")),
]
LIMIT = "After that the CPUs are the limit: 1.73x of the 2.28x that free loading would give."
TO_DO = Section("What to do", [Table(("", "where", "predicted"), CHANGES), Text(LIMIT, "note")], 3)
FINDINGS = (
    FindingText(
        "slow transform",
        "shrink takes 54.2% of loading a batch: 747 us a call, 32 calls a batch.",
        share(0.36),
        f"{FOLDER}/train/run.py:126 __getitem__ > shrink",
        ["make shrink twice as fast: smaller inputs, or a faster library", "num_workers=3"],
        [("share of loading a batch", share(0.542)), ("a call", ms(0.747))],
        "times of the stages inside the loader, and a simulation of it without this",
    ),
    FindingText(
        "epoch boundaries",
        "Each epoch begins with a wait of 133 ms.",
        share(0.087),
        do=["persistent_workers=True"],
    ),
    FindingText("outliers", "3 of 191 batches take over twice the median.", where="run.py:90"),
)
WHY = Section("Why", [Findings(FINDINGS)], 4)
SURE = Section(
    "How sure",
    [
        Text("191 real and 70 ideal batches in 7 pairs of blocks."),
        Text(
            "Other virtual machines took 22.2% of the CPU time that this one wanted (steal): the "
            "next run may differ by more than the 95% CI [2.22x, 2.33x].",
            "caution",
        ),
    ],
    5,
)
MORE = [
    ("everything", "loadeval compare demo.jsonl --full"),
    ("page", "loadeval report demo.jsonl"),
]


def _beside(title: str, says: str, bars: list[tuple[str, str, Estimate]]) -> Chart:
    columns = zip(("row", "series", "length"), zip(*bars, strict=True), strict=True)
    table = Columns({name: np.array(column) for name, column in columns})
    return Chart("real beside ideal", title, says, {"bars": table}, "images/s")


def real_beside_ideal() -> Chart:
    return _beside(
        "Throughput",
        "Images per second of the run as it is, with ideal loading, and of the loader alone.",
        [
            ("training", "real", Estimate(727.0, 701.0, 753.0)),
            ("training", "ideal", Estimate(1503.0, 1469.0, 1539.0)),
            ("training", "loader", Estimate(725.0)),
        ],
    )


def backends() -> Chart:
    rows = [
        ("torch.utils.data.DataLoader with Pillow", 727.0, 1503.0, 725.0),
        ("DALI", 1310.0, 1498.0, 4100.0),
        ("SPDL", 1180.0, 1496.0, 1900.0),
    ]
    return _beside(
        "Backends under one training step",
        "Images per second of three backends, with ideal loading, and of each loader alone.",
        [
            (name, series, Estimate(rate, rate * 0.97, rate * 1.04))
            for name, *rates in rows
            for series, rate in zip(("real", "ideal", "loader"), rates, strict=True)
        ],
    )


def time_per_batch() -> Bars:
    says = "A real batch takes 48.5 ms, of which 18.6 ms are waiting; an ideal one takes 21.3 ms."
    return replace(BARS, title="Time per batch", says=says)


def waits(count: int = 384, epoch: int = 32) -> Chart:
    """Real and ideal blocks in turn, an epoch start in each epoch, and a few outliers."""
    random = np.random.default_rng(7)
    batch = np.arange(count) % epoch
    arm = ((np.arange(count) // 13) % 3).clip(0, 1)
    wait_ns = np.where(arm == 1, 5e3, random.choice([2, 40], count) * MS * random.random(count))
    wait_ns = np.where(batch == 0, 133 * MS, wait_ns)
    outlier = np.zeros(count, dtype=np.bool_)
    outlier[[count // 30 + 1, count - 20, count - 17]] = True
    wait_ns = np.where(outlier, 80 * MS, wait_ns).astype(np.int64)
    batches = {
        "request_ns": np.cumsum(wait_ns + 22_000_000) - wait_ns,
        "wait_ns": wait_ns,
        "arm": arm,
        "epoch": np.arange(count) // epoch,
        "batch": batch,
        "outlier": outlier,
    }
    says = f"How long training waited for each of {count:,} batches."
    return Chart("waits", "Waits", says, {"batches": Columns(batches)})


def system_metrics(count: int = 150) -> Chart:
    """Waits above what was read meanwhile."""
    random, time_s = np.random.default_rng(8), np.linspace(0.1, 14.0, count)
    lines = [
        ("gpu", "GPU 0", "busy_percent", 60 + 30 * np.sin(time_s)),
        ("gpu", "GPU 1", "busy_percent", 50 + 30 * np.cos(time_s)),
        ("host", "process", "cpu_cores", 1 + random.random(count)),
        ("host", "workers", "cpu_cores", 1.9 + 0.1 * random.random(count)),
        ("host", "machine", "memory_available_bytes", np.linspace(1.0e9, 1.4e9, count)),
    ]
    readings = {
        (probe, subject): Columns({"time_ns": time_s * 1e9, quantity: values})
        for probe, subject, quantity, values in lines
    }
    return replace(waits(), title="Waits and system metrics", readings=readings)


def stages() -> Chart:
    """Two workers that load a batch each in turn, for a training process that waits for them."""
    batch = np.arange(24)
    begin_ns = 44_000_000 * (batch // 2) + 20_000_000 * (batch % 2)
    fetch_ns = 35_000_000 + 2_000_000 * (batch % 3)
    ready_ns = begin_ns + 41_000_000
    unknown = np.full(24, UNKNOWN)
    names = ("index_ns", "pickle_start_ns", "pickle_ns", "received_ns", "receive_ns", "pin_ns")
    batches = {
        "worker": batch % 2,
        "batch": batch,
        "fetch_start_ns": begin_ns,
        "fetch_ns": fetch_ns,
        "collate_ns": ready_ns - begin_ns - fetch_ns,
        "delivered_ns": ready_ns,
        **dict.fromkeys(names, unknown),
    }
    stages = {
        "label": ["indices", "fetch", "  shrink", "  decode", "collate", "receive"],
        "stage": ["indices", "fetch", "fetch", "fetch", "collate", "receive"],
        "ns": [41.3e3, 38.1 * MS, 23.9 * MS, 14.0 * MS, 3.85 * MS, 1.71 * MS],
    }
    return Chart(
        "stages",
        "Inside the loader",
        "Fetching takes 86% of loading a batch. Below, epoch 3, batches 0 to 23: what each worker "
        "and the training process did when.",
        {
            "stages": Columns({name: np.array(column) for name, column in stages.items()}),
            "batches": Columns(batches),
            "steps": Columns({"start_ns": ready_ns, "end_ns": ready_ns + 10_000_000}),
        },
        "duration",
    )


def worker_curve() -> Chart:
    workers = np.arange(0, 9)
    predicted = np.minimum(363.0 * np.maximum(workers, 0.6), 1503.0)
    return Chart(
        "worker curve",
        "Throughput by number of workers",
        "727 images/s were measured with 2 workers; from 5 on the training step is the limit.",
        {
            "measured": Columns({"workers": [2], "rate": [Estimate(727.0, 701.0, 753.0)]}),
            "predicted": Columns(
                {
                    "workers": workers,
                    "rate": [Estimate(rate, rate * 0.9, rate * 1.08) for rate in predicted],
                }
            ),
        },
        unit="images/s",
    )


def every_chart() -> list[Chart | Bars]:
    charts = real_beside_ideal(), backends(), system_metrics(), stages(), worker_curve()
    return [*charts, time_per_batch()]


LOST = [
    ("time lost", ms(27.2, 26.1, 28.2), share(0.56, 0.549, 0.571)),
    ("  waiting", ms(18.6, 17.4, 19.8), share(0.384)),
    ("  contention", ms(4.12, 3.29, 4.96), share(0.085)),
    ("  epoch starts", ms(4.45, 4.01, 4.89), share(0.092)),
]
PILLOW = rate(727, 701, 753), rate(1503, 1469, 1539), rate(725, 667, 790), SPEEDUP
DALI = rate(1310, 1290, 1330), rate(1498, 1460, 1530), rate(4100.0), times(1.14, 1.1, 1.18)
GAINS = Table(
    ("images/s", "real", "ideal", "loader alone", "speed-up", "verdict"),
    [
        ("torch.utils.data.DataLoader with Pillow", *PILLOW, "highly input-bound"),
        ("DALI", *DALI, "moderately input-bound"),
    ],
    caption="What each would gain",
)
SEEN = Table(
    ("line of code", "share", "blocked"),
    [
        (f"{FOLDER}/train/data/run.py:126 __getitem__ > shrink", share(0.637), share(0.0004)),
        ("run.py:98 load_image", share(0.22), Number(0.0, "share")),
    ],
    caption="Where workers were seen",
    folded=True,
)
ENTRIES = [
    Text("Workers were seen 720 times.", "entry"),
    Text("A stage can take longer than training waits for it.", "entry"),
]
SETTINGS = [
    ("loader", "DataLoader"),
    ("bytes per batch", Number(4_816_896, "size")),
    ("usable CPUs", "4"),
    ("log", "/mnt/datasets/a-long-name-of-a-folder/runs/2026-11-28/demo.jsonl"),
]
AGAIN = Text("loadeval compare demo.jsonl --full --json --between 120s 180s", "command")


def report() -> list[Section]:
    lost = Table(("", "per batch", "of the time"), LOST)
    return [
        *(HEADLINE, BATCH, TO_DO, WHY, SURE, Section("", [Facts(MORE)], 1)),
        Section("Time lost", [lost, real_beside_ideal()]),
        Section("Backends", [backends(), GAINS]),
        Section("Along the run", [system_metrics()]),
        Section("Inside the loader", [stages(), SEEN, *ENTRIES]),
        Section("Other numbers of workers", [worker_curve()]),
        Section("Settings", [Facts(SETTINGS), AGAIN]),
    ]

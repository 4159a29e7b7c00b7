"""A report with every kind of block and chart, of a run like the demo's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from loadeval.data.columns import Columns
from loadeval.data.log import read_run
from loadeval.estimate.stats import Estimate
from loadeval.model.model import Model
from loadeval.report import whatif
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
from loadeval.report.build import Result, inside, result_of, timeline
from tests.runs import DEMO

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


def real_beside_ideal() -> Bars:
    of_training = {
        "real": Estimate(727.0, 701.0, 753.0),
        "ideal": Estimate(1503.0, 1469.0, 1539.0),
        "loader alone": Estimate(725.0),
    }
    says = "Images per second of the run as it is, with ideal loading, and of the loader alone."
    return Bars([("training", of_training)], "Throughput", says, "images/s", stacked=False)


def backends() -> Bars:
    rates = [
        ("torch.utils.data.DataLoader with Pillow", (727.0, 1503.0, 725.0)),
        ("DALI", (1310.0, 1498.0, 4100.0)),
        ("SPDL", (1180.0, 1496.0, 1900.0)),
    ]
    rows = [
        (
            name,
            {
                series: Estimate(rate, rate * 0.97, rate * 1.04)
                for series, rate in zip(("real", "ideal", "loader alone"), own, strict=True)
            },
        )
        for name, own in rates
    ]
    title = "Backends under one training step"
    says = "Images per second of three backends, with ideal loading, and of each loader alone."
    return Bars(rows, title, says, "images/s", stacked=False)


def time_per_batch() -> Bars:
    says = "A real batch takes 48.5 ms, of which 18.6 ms are waiting; an ideal one takes 21.3 ms."
    return replace(BARS, title="Time per batch", says=says)


@cache
def demo() -> Result:
    return result_of(read_run(DEMO))


def chart_of(section: Section) -> Chart:
    (chart,) = (block for block in section.blocks if isinstance(block, Chart))
    return chart


def waits(of: Result | None = None) -> Chart:
    return chart_of(timeline(of or demo()))


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
    return chart_of(inside(demo()))


def worker_curve() -> Chart:
    model = Model.of(demo().run)
    return whatif.worker_curve(model, whatif.by_workers(model))


KINDS = (real_beside_ideal, backends, time_per_batch, system_metrics, stages, worker_curve)
CHARTS: dict[str, Callable[[], Chart | Bars]] = {each.__name__: each for each in KINDS}


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
)
ENTRIES = [
    Text("Workers were seen 720 times.", "entry"),
    Text("A stage can take longer than training waits for it.", "entry"),
]
SETTINGS: list[tuple[str, str | Number]] = [
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

"""Predictions that are made up, and a curve of them."""

from __future__ import annotations

from typing import Any

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.prediction import Assumption, Limit, Prediction, Range, WorkerCurve
from loadeval.analysis.remark import Remark

MS = 1e6
GROWS = Remark(Assumption.CPU_TIME_GROWS, {"least": 0.0, "most": 0.12})
PRESENT_RATE = Estimate(500.0, 480.0, 520.0)


def spread(value: float) -> Range:
    """A range from 10% below to 10% above."""
    return Range(value, 0.9 * value, 1.1 * value)


def prediction(num_workers: int = 4, rate: float = 1000.0, **changes: Any) -> Prediction:
    """A throughput of `rate` is predicted, where 500 images/s were measured."""
    usual = {
        "prefetch_factor": 2,
        "in_order": True,
        "cpus": 4.0,
        "batch_size": 32,
        "faster": {},
        "iteration_ns": spread(32e9 / rate),
        "throughput": spread(rate),
        "unit": "images",
        "speedup": spread(rate / PRESENT_RATE.value),
        "limit": Limit.WORKERS,
        "memory_bytes": 300e6 * num_workers,
        "shared_memory_bytes": 5e6 * num_workers,
        "assumptions": (),
    }
    return Prediction(num_workers=num_workers, **{**usual, **changes})


def worker_curve(**changes: Any) -> WorkerCurve:
    """Measured with 2 workers, and predicted for 1 to 8 on 4 CPUs."""
    predicted = [prediction(count, 250.0 * count) for count in (1, 2, 3, 4)]
    predicted += [
        prediction(count, 1000.0, limit=Limit.CPUS, assumptions=(GROWS,)) for count in (5, 6, 7, 8)
    ]
    usual = {
        "measured": ((2, PRESENT_RATE),),
        "predicted": tuple(predicted),
        "unit": "images",
        "cpus": 4.0,
        "others_cpus": 0.0,
    }
    return WorkerCurve(**{**usual, **changes})

"""What tuning a loader found, made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loadeval.analysis.estimate.stats import Estimate
from loadeval.analysis.predict.tuning import (
    LeftOut,
    SettingsLeftOut,
    Stop,
    Trial,
    TrialState,
    TuningReport,
)
from loadeval.analysis.remark import Remark
from tests.report.predictions import PRESENT_RATE, prediction, worker_curve

BEST_RATE = Estimate(900.0, 850.0, 950.0)
MEASURED = Trial({"num_workers": 2, "timeout": None}, TrialState.MEASURED, throughput=PRESENT_RATE)
BEST = Trial(
    {"num_workers": 4, "timeout": None},
    TrialState.MEASURED,
    prediction(4),
    BEST_RATE,
    BEST_RATE,
    Estimate(1.8, 1.7, 1.9),
    1.2e9,
)
FAILED = Trial(
    {"num_workers": 3, "timeout": None}, TrialState.FAILED, prediction(3), error="OSError: gone"
)
UNMEASURED = Trial(
    {"num_workers": 4, "timeout": None, "in_order": False}, TrialState.NOT_MEASURED, prediction(4)
)


def tuned(**changes: Any) -> TuningReport:
    """Tuning went from 2 workers to 4; 3 failed, and for 64 there was no room."""
    values = {"needed_bytes": 2e10, "free_bytes": 1e9}
    report = TuningReport(
        trials=(MEASURED, BEST, FAILED, UNMEASURED),
        best=BEST,
        gain=BEST.ratio,
        stopped=Stop.SMALL_GAIN,
        left_out=(SettingsLeftOut({"num_workers": 64}, Remark(LeftOut.MEMORY, values)),),
        unit="images",
        step=True,
        predicted=True,
        epoch_batches=100.0,
        curve=worker_curve(measured=((4, BEST_RATE), (2, PRESENT_RATE))),
        left=Estimate(1.1, 1.05, 1.15),
    )
    return replace(report, **changes)

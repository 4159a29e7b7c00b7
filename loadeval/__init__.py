"""How much faster would training be if data loading were free? Measured, for any loader."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.analysis.backends import BackendResult
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.metrics import Level, Quantity, quantities
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.estimate.verdict import Verdict
    from loadeval.analysis.inside.operators import OperatorReport, ThreadReport
    from loadeval.analysis.inside.stages import StageReport
    from loadeval.analysis.remark import Remark
    from loadeval.analysis.rules.diagnosis import diagnose
    from loadeval.analysis.rules.finding import Check, Diagnosis, Fact, Finding, Place, Rule
    from loadeval.backends import compare_backends
    from loadeval.data.lines import (
        CodeSamples,
        LoaderInfo,
        OperatorTimes,
        Readings,
        StageTimes,
        WorkerStart,
    )
    from loadeval.data.log import read_run
    from loadeval.data.run import Run
    from loadeval.errors import CacheError, LoadevalError, LoadevalWarning, RunLogError, UsageError
    from loadeval.evaluator import LoaderEvaluator
    from loadeval.launch.install import install
    from loadeval.model.changes import Change
    from loadeval.model.model import Model
    from loadeval.model.whatif import WhatIf, whatif
    from loadeval.report.backends import BackendComparison
    from loadeval.report.figure.figure import plot_comparison
    from loadeval.report.whatif import plot_worker_curve
    from loadeval.report.wording.findings import describe
    from loadeval.runtime.adapter import Adapter, IterableAdapter, Watch
    from loadeval.runtime.alternation.backends import Backend
    from loadeval.runtime.batches.tree import is_array, leaves, map_leaves
    from loadeval.runtime.recording.stages import LoaderStages, StageNote
    from loadeval.runtime.registry import adapter_for
    from loadeval.tuning import Tuning, tune

__all__ = [
    "Adapter",
    "Backend",
    "BackendComparison",
    "BackendResult",
    "CacheError",
    "Change",
    "Check",
    "CodeSamples",
    "Diagnosis",
    "Estimate",
    "Fact",
    "Finding",
    "Headroom",
    "IterableAdapter",
    "Level",
    "LoaderEvaluator",
    "LoaderInfo",
    "LoaderStages",
    "LoadevalError",
    "LoadevalWarning",
    "Model",
    "OperatorReport",
    "OperatorTimes",
    "Place",
    "Quantity",
    "Readings",
    "Remark",
    "Rule",
    "Run",
    "RunLogError",
    "StageNote",
    "StageReport",
    "StageTimes",
    "ThreadReport",
    "Tuning",
    "UsageError",
    "Verdict",
    "Watch",
    "WhatIf",
    "WorkerStart",
    "adapter_for",
    "compare_backends",
    "describe",
    "diagnose",
    "install",
    "is_array",
    "leaves",
    "map_leaves",
    "plot_comparison",
    "plot_worker_curve",
    "quantities",
    "read_run",
    "tune",
    "whatif",
]

_MODULES = {
    name: f"loadeval.{module}"
    for module, names in {
        "analysis.backends": ("BackendResult",),
        "analysis.estimate.headroom": ("Headroom",),
        "analysis.estimate.metrics": ("Level", "Quantity", "quantities"),
        "analysis.inside.operators": ("OperatorReport", "ThreadReport"),
        "analysis.remark": ("Remark",),
        "analysis.rules.diagnosis": ("diagnose",),
        "analysis.rules.finding": ("Check", "Diagnosis", "Fact", "Finding", "Place", "Rule"),
        "analysis.inside.stages": ("StageReport",),
        "analysis.estimate.stats": ("Estimate",),
        "backends": ("compare_backends",),
        "analysis.estimate.verdict": ("Verdict",),
        "errors": ("CacheError", "LoadevalError", "LoadevalWarning", "RunLogError", "UsageError"),
        "evaluator": ("LoaderEvaluator",),
        "launch.install": ("install",),
        "model.changes": ("Change",),
        "model.model": ("Model",),
        "model.whatif": ("WhatIf", "whatif"),
        "report.backends": ("BackendComparison",),
        "report.figure.figure": ("plot_comparison",),
        "report.whatif": ("plot_worker_curve",),
        "report.wording.findings": ("describe",),
        "data.run": ("Run",),
        "data.log": ("read_run",),
        "data.lines": (
            *(
                "CodeSamples",
                "LoaderInfo",
                "OperatorTimes",
                "Readings",
                "StageTimes",
                "WorkerStart",
            ),
        ),
        "runtime.adapter": ("Adapter", "IterableAdapter", "Watch"),
        "runtime.alternation.backends": ("Backend",),
        "runtime.batches.tree": ("is_array", "leaves", "map_leaves"),
        "runtime.recording.stages": ("LoaderStages", "StageNote"),
        "runtime.registry": ("adapter_for",),
        "tuning": ("Tuning", "tune"),
    }.items()
    for name in names
}
"""A public name is imported from its module when it is first used."""


if not TYPE_CHECKING:  # with a __getattr__ a type checker would believe in any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})

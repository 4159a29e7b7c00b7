"""How much faster would training be if data loading were free? Measured, for any loader."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.adapter import (
        Adapter,
        IterableAdapter,
        LoaderStages,
        StageNote,
        Watch,
        adapter_for,
    )
    from loadeval.backends import Backend, compare_backends
    from loadeval.core.batch import is_array, leaves, map_leaves
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
    from loadeval.estimate.gap import Gap
    from loadeval.estimate.stats import Estimate
    from loadeval.evaluator import LoaderEvaluator
    from loadeval.findings.engine import Action, Diagnosis, Finding, diagnose
    from loadeval.inside.stages import Stages
    from loadeval.launch.install import install
    from loadeval.model.changes import Change
    from loadeval.model.model import Model
    from loadeval.model.whatif import WhatIf, whatif
    from loadeval.report.report import Report, plot_comparison
    from loadeval.report.whatif import plot_worker_curve
    from loadeval.tuning import Tuning, tune

__all__ = [
    "Action",
    "Adapter",
    "Backend",
    "CacheError",
    "Change",
    "CodeSamples",
    "Diagnosis",
    "Estimate",
    "Finding",
    "Gap",
    "IterableAdapter",
    "LoaderEvaluator",
    "LoaderInfo",
    "LoaderStages",
    "LoadevalError",
    "LoadevalWarning",
    "Model",
    "OperatorTimes",
    "Readings",
    "Report",
    "Run",
    "RunLogError",
    "StageNote",
    "StageTimes",
    "Stages",
    "Tuning",
    "UsageError",
    "Watch",
    "WhatIf",
    "WorkerStart",
    "adapter_for",
    "compare_backends",
    "diagnose",
    "install",
    "is_array",
    "leaves",
    "map_leaves",
    "plot_comparison",
    "plot_worker_curve",
    "read_run",
    "tune",
    "whatif",
]

_MODULES = {
    name: f"loadeval.{module}"
    for module, names in {
        "backends": "Backend compare_backends",
        "data.lines": "CodeSamples LoaderInfo OperatorTimes Readings StageTimes WorkerStart",
        "data.log": "read_run",
        "data.run": "Run",
        "errors": "CacheError LoadevalError LoadevalWarning RunLogError UsageError",
        "estimate.gap": "Gap",
        "estimate.stats": "Estimate",
        "evaluator": "LoaderEvaluator",
        "findings.engine": "Action Diagnosis Finding diagnose",
        "inside.stages": "Stages",
        "launch.install": "install",
        "model.changes": "Change",
        "model.model": "Model",
        "model.whatif": "WhatIf whatif",
        "report.report": "Report plot_comparison",
        "report.whatif": "plot_worker_curve",
        "adapter": "Adapter IterableAdapter LoaderStages StageNote Watch adapter_for",
        "core.batch": "is_array leaves map_leaves",
        "tuning": "Tuning tune",
    }.items()
    for name in names.split()
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

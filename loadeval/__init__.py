"""How much faster would training be if data loading were free? Measured, for any loader."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.adapter import Adapter as Adapter
    from loadeval.adapter import IterableAdapter as IterableAdapter
    from loadeval.adapter import LoaderStages as LoaderStages
    from loadeval.adapter import StageNote as StageNote
    from loadeval.adapter import Watch as Watch
    from loadeval.adapter import adapter_for as adapter_for
    from loadeval.backends import Backend as Backend
    from loadeval.backends import compare_backends as compare_backends
    from loadeval.core.batch import is_array as is_array
    from loadeval.core.batch import leaves as leaves
    from loadeval.core.batch import map_leaves as map_leaves
    from loadeval.data.lines import CodeSamples as CodeSamples
    from loadeval.data.lines import LoaderInfo as LoaderInfo
    from loadeval.data.lines import OperatorTimes as OperatorTimes
    from loadeval.data.lines import Readings as Readings
    from loadeval.data.lines import StageTimes as StageTimes
    from loadeval.data.lines import WorkerStart as WorkerStart
    from loadeval.data.log import read_run as read_run
    from loadeval.data.run import Run as Run
    from loadeval.errors import CacheError as CacheError
    from loadeval.errors import LoadevalError as LoadevalError
    from loadeval.errors import LoadevalWarning as LoadevalWarning
    from loadeval.errors import RunLogError as RunLogError
    from loadeval.errors import UsageError as UsageError
    from loadeval.estimate.gap import Gap as Gap
    from loadeval.estimate.stats import Estimate as Estimate
    from loadeval.evaluator import LoaderEvaluator as LoaderEvaluator
    from loadeval.findings.engine import Action as Action
    from loadeval.findings.engine import Diagnosis as Diagnosis
    from loadeval.findings.engine import Finding as Finding
    from loadeval.findings.engine import diagnose as diagnose
    from loadeval.inside.stages import Stages as Stages
    from loadeval.launch.install import install as install
    from loadeval.model.costs import Change as Change
    from loadeval.model.model import Model as Model
    from loadeval.report.report import Report as Report
    from loadeval.report.report import plot_comparison as plot_comparison
    from loadeval.report.whatif import WhatIf as WhatIf
    from loadeval.report.whatif import plot_worker_curve as plot_worker_curve
    from loadeval.report.whatif import whatif as whatif
    from loadeval.tuning import Tuning as Tuning
    from loadeval.tuning import tune as tune

_MODULES = {
    name: f"loadeval.{module}"
    for module, names in {
        "adapter": "Adapter IterableAdapter LoaderStages StageNote Watch adapter_for",
        "backends": "Backend compare_backends",
        "core.batch": "is_array leaves map_leaves",
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
        "model.costs": "Change",
        "model.model": "Model",
        "report.report": "Report plot_comparison",
        "report.whatif": "WhatIf plot_worker_curve whatif",
        "tuning": "Tuning tune",
    }.items()
    for name in names.split()
}
"""A public name is imported from its module when it is first used."""
__all__ = sorted(_MODULES)  # noqa: PLE0605 - a type checker reads the imports


if not TYPE_CHECKING:  # with a __getattr__ a type checker would believe in any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})

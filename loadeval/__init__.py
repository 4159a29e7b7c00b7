"""How much faster would training be if data loading were free? Measured, for any loader."""

from loadeval.analysis.backends import BackendResult
from loadeval.analysis.headroom import Headroom
from loadeval.analysis.metrics import Level, Quantity, quantities
from loadeval.analysis.remark import Remark
from loadeval.analysis.rules.diagnosis import diagnose
from loadeval.analysis.rules.finding import Check, Diagnosis, Fact, Finding, Place, Rule
from loadeval.analysis.stats import Estimate
from loadeval.backends import compare_backends
from loadeval.errors import CacheError, LoadevalError, LoadevalWarning, RunLogError, UsageError
from loadeval.evaluator import LoaderEvaluator
from loadeval.in_place import evaluate_in_place
from loadeval.report.backends import BackendComparison
from loadeval.report.figure import plot_comparison
from loadeval.report.wording_findings import describe
from loadeval.runlog.model import LoaderInfo, Run
from loadeval.runlog.reader import read_run
from loadeval.runtime.adapter import Adapter, IterableAdapter
from loadeval.runtime.backends import Backend
from loadeval.runtime.batch import is_array, leaves, map_leaves

__all__ = [
    "Adapter",
    "Backend",
    "BackendComparison",
    "BackendResult",
    "CacheError",
    "Check",
    "Diagnosis",
    "Estimate",
    "Fact",
    "Finding",
    "Headroom",
    "IterableAdapter",
    "Level",
    "LoaderEvaluator",
    "LoaderInfo",
    "LoadevalError",
    "LoadevalWarning",
    "Place",
    "Quantity",
    "Remark",
    "Rule",
    "Run",
    "RunLogError",
    "UsageError",
    "compare_backends",
    "describe",
    "diagnose",
    "evaluate_in_place",
    "is_array",
    "leaves",
    "map_leaves",
    "plot_comparison",
    "quantities",
    "read_run",
]

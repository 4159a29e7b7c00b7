"""How much faster would training be if data loading were free? Measured, for any loader."""

from loadeval.errors import CacheError, LoadevalError, LoadevalWarning, RunLogError, UsageError
from loadeval.evaluator import LoaderEvaluator
from loadeval.in_place import evaluate_in_place
from loadeval.measure.adapter import Adapter, IterableAdapter
from loadeval.measure.tree import is_array, leaves, map_leaves
from loadeval.record.metrics import read_run
from loadeval.record.model import LoaderInfo, Run
from loadeval.report.plots import plot_comparison

__all__ = [
    "Adapter",
    "CacheError",
    "IterableAdapter",
    "LoaderEvaluator",
    "LoaderInfo",
    "LoadevalError",
    "LoadevalWarning",
    "Run",
    "RunLogError",
    "UsageError",
    "evaluate_in_place",
    "is_array",
    "leaves",
    "map_leaves",
    "plot_comparison",
    "read_run",
]

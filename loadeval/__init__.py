"""How much faster would training be if data loading were free? Measured, for any loader."""

from loadeval.errors import CacheError, LoadevalError, LoadevalWarning, RunLogError, UsageError
from loadeval.measure.adapter import Adapter, IterableAdapter
from loadeval.measure.evaluator import LoaderEvaluator
from loadeval.measure.tree import is_array, leaves, map_leaves
from loadeval.record.metrics import read_run
from loadeval.record.model import LoaderInfo, Run

__all__ = [
    "Adapter",
    "CacheError",
    "IterableAdapter",
    "LoadevalError",
    "LoadevalWarning",
    "LoaderEvaluator",
    "LoaderInfo",
    "Run",
    "RunLogError",
    "UsageError",
    "is_array",
    "leaves",
    "map_leaves",
    "read_run",
]

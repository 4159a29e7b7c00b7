"""A pytest plugin: test modules of other projects get wrapped loaders under the loaders' names.

LE_MODE says how: "log", "alternate" or "replay" for a LoaderEvaluator, "inplace-log" and so on for
install(loader), and nothing for the loaders themselves. A test module that takes its DataLoader
from a module `wrapdl` gets this one.
"""

import os
import sys
from importlib import import_module
from typing import Any

import loadeval

MODE = os.environ.get("LE_MODE", "")
IN_PLACE = "inplace-"
SUITES = {
    "torch": ("torch.utils.data", "DataLoader"),
    "torchdata": ("torchdata.stateful_dataloader", "StatefulDataLoader"),
}
DALI = "nvidia.dali.plugin.pytorch.loader_evaluator"


def wrapping(kind: type) -> type:
    """Stands for `kind`, and wraps what it makes."""

    def new(_: type, *args: Any, **options: Any) -> Any:
        loader = kind(*args, **options)
        if MODE.startswith(IN_PLACE):
            loadeval.install(loader, MODE.removeprefix(IN_PLACE))
            return loader
        return loadeval.LoaderEvaluator(loader, MODE)

    return type(
        kind.__name__, (), {"__new__": new, "__class_getitem__": classmethod(lambda made, _: made)}
    )


def pytest_configure() -> None:
    """Exchange the names before any test module imports them."""
    suite = os.environ.get("LE_SUITE", "")
    if suite == "dali" and MODE:
        sys.modules[DALI] = loadeval
    elif MODE and suite in SUITES:
        module, name = SUITES[suite]
        loaders = import_module(module)
        setattr(loaders, name, wrapping(getattr(loaders, name)))
        sys.modules["wrapdl"] = loaders

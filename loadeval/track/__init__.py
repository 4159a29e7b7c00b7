"""Passes a run on to an experiment tracker: scalars, and at the end the page.

`tracker.py` has what is passed on, whatever takes it. Each other file is one tracker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.errors import UsageError
from loadeval.track.tracker import FunctionTracker

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.runtime.background.tracking import Tracker
    from loadeval.runtime.settings import TrackerName


def tracker_for(track: TrackerName | Callable[[int, dict[str, float]], object]) -> Tracker:
    """The tracker of that name, or what calls that function.

    Raises UsageError where the tracker's package is not installed.
    """
    if callable(track):
        return FunctionTracker(track)
    return _tracker_named(track)


def _tracker_named(name: TrackerName) -> Tracker:
    try:
        if name == "mlflow":
            from loadeval.track.mlflow import MLflowTracker  # noqa: PLC0415 - imports mlflow

            return MLflowTracker()
        if name == "wandb":
            from loadeval.track.wandb import WandbTracker  # noqa: PLC0415 - imports wandb

            return WandbTracker()
        from loadeval.track.tensorboard import TensorBoardTracker  # noqa: PLC0415 - imports tensorboard
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UsageError(
            f"track={name!r} needs the package {name}, which is not installed; install it with: "
            f"pip install {name}"
        ) from error
    return TensorBoardTracker()

"""MLflow. Imports mlflow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import mlflow
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient, fluent

from loadeval.track.tracker import RunTracker

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "loadeval"
DEFAULT_EXPERIMENT = "0"


class MLflowTracker(RunTracker):
    """Logs to the run that is active when the first batch is served, or to one of its own.

    By the client and the run's number alone: the active run is that of the thread that began it,
    and the program may end it before us.
    """

    name = "MLflow"

    def __init__(self) -> None:
        super().__init__()
        self._run_id: str | None = None
        self._is_own = False

    def join(self) -> None:
        """Join the active run."""
        active = mlflow.active_run()
        self._run_id = None if active is None else active.info.run_id

    def log(self, step: int, scalars: dict[str, float]) -> None:
        """Log metrics."""
        now_ms = round(time.time() * 1000)
        metrics = [Metric(name, value, now_ms, step) for name, value in scalars.items()]
        client = MlflowClient()
        client.log_batch(self._joined_or_begun(client), metrics=metrics)

    def attach(self, files: list[Path]) -> None:
        """Log artifacts, in a folder of theirs."""
        client = MlflowClient()
        for file in files:
            client.log_artifact(self._joined_or_begun(client), str(file), FOLDER)

    def end(self) -> None:
        """Set the own run terminated."""
        if self._is_own and self._run_id is not None:
            MlflowClient().set_terminated(self._run_id)

    def _joined_or_begun(self, client: MlflowClient) -> str:
        if self._run_id is None:
            # There is no public name for the experiment that the program has chosen.
            chosen = getattr(fluent, "_get_experiment_id", lambda: DEFAULT_EXPERIMENT)()
            self._run_id = client.create_run(chosen, run_name=self.run_name).info.run_id
            self._is_own = True
        run_id: str = self._run_id
        return run_id

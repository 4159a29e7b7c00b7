"""Weights & Biases. Imports wandb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import wandb

from loadeval.track.tracker import BATCHES, PREFIX, RunTracker

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = "loadeval"


class WandbTracker(RunTracker):
    """Logs to `wandb.run` as it is when the first batch is served, or to a run of its own."""

    name = "Weights & Biases"

    def __init__(self) -> None:
        super().__init__()
        self._run: Any = None
        self._is_own = False

    def join(self) -> None:
        """Join the program's run."""
        self._run = wandb.run
        if self._run is not None:
            self._define()

    def log(self, step: int, scalars: dict[str, float]) -> None:
        """Log a row of its own; in the program's run with the next row that the program logs.

        A row more would move the program's steps on.
        """
        run = self._joined_or_begun()
        run.log({**scalars, BATCHES: step}, commit=self._is_own)

    def attach(self, files: list[Path]) -> None:
        """Log an artifact, of type report."""
        run = self._joined_or_begun()
        artifact = wandb.Artifact(f"loadeval-{run.id}", type="report")
        for file in files:
            artifact.add_file(str(file))
        run.log_artifact(artifact)

    def end(self) -> None:
        """Finish the own run."""
        if self._is_own:
            self._run.finish()

    def _joined_or_begun(self) -> Any:
        if self._run is None:
            # What the program prints is left alone, and so is a run that it begins later.
            self._run = wandb.init(
                project=wandb.setup().settings.project or PROJECT,
                name=self.run_name,
                reinit="create_new",
                settings=wandb.Settings(console="off"),
            )
            self._is_own = True
            self._define()
        return self._run

    def _define(self) -> None:
        """Let these metrics be drawn over the batches, not over the program's steps."""
        self._run.define_metric(BATCHES, hidden=True)
        self._run.define_metric(f"{PREFIX}*", step_metric=BATCHES)

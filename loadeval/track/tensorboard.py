"""TensorBoard. Imports tensorboard."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from loadeval.track.tracker import RunTracker

FOLDER = Path("runs")
"""Where TensorBoard's writer of torch puts its runs by default."""


class TensorBoardTracker(RunTracker):
    """Writes event files to a new folder in `runs`, and the page and the figure beside them."""

    name = "TensorBoard"

    def __init__(self) -> None:
        super().__init__()
        self._writer: EventFileWriter | None = None

    def log(self, step: int, scalars: dict[str, float]) -> None:
        """Write an event."""
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._begun().add_event(event)
        self._begun().flush()

    def attach(self, files: list[Path]) -> None:
        """Copy them into the folder."""
        for file in files:
            shutil.copy(file, self._begun().get_logdir())

    def end(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _begun(self) -> EventFileWriter:
        if self._writer is None:
            when = time.strftime("%Y%m%d-%H%M%S")
            name = self.run_name.replace(" ", "-").replace("/", "-")
            self._writer = EventFileWriter(str(FOLDER / f"{name}-{when}"))
        return self._writer

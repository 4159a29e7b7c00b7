"""A bar that shows how far tuning is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

REDRAW_NS = 200_000_000

ProgressCallback: TypeAlias = Callable[[str, int, int], None]
"""Called with what is measured, how many batches are done, and about how many there are."""


@contextmanager
def bar(wanted: bool, clock: Callable[[], int]) -> Iterator[ProgressCallback]:
    """A progress bar on stderr, if that is a terminal. No thread draws it: loaders fork."""
    if not wanted or not sys.stderr.isatty():
        yield lambda _naming, _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - kept out of `import loadeval`
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as drawn:
        task = drawn.add_task("tune", total=None)
        last_ns = 0

        def on_progress(naming: str, done: int, total: int) -> None:
            nonlocal last_ns
            if clock() - last_ns >= REDRAW_NS:
                last_ns = clock()
                drawn.update(task, description=naming, completed=min(done, total), total=total)
                drawn.refresh()

        yield on_progress

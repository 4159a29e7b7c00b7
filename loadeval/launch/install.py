"""Measure every known loader of this process, in a notebook for example."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError
from loadeval.launch import hook
from loadeval.launch.folder import new_folder
from loadeval.launch.loadeval_inject import Finder, said
from loadeval.launch.session import Session
from loadeval.launch.settings import RunSettings, check
from loadeval.runtime.registry import registered

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

_finders: list[Any] = []


def install(
    mode: str = "log",
    *,
    batches: int | None = None,
    output: str | os.PathLike[str] | None = None,
    redact: bool = False,
    settings: Mapping[str, Any] | None = None,
    allow_changes: bool = False,
) -> Path:
    """Measure every known loader that this process iterates, from now on, as `loadeval run` does.

    The training loader is iterated with gradients on, and optimizers make steps between its
    batches. It is measured in `mode`; others are logged beside it, in logs of their own.
    `batches` and `redact` are as in LoaderEvaluator.

    The training loader gets `settings` in place of its own before its first epoch, such as
    {"num_workers": 4}; the others get those whose name begins with "validation.". Settings that
    change what is trained on, such as `batch_size`, need `allow_changes=True`.

    Returns the folder of the logs: `output`, which must be new or empty, or one in
    `loadeval-runs`. Measuring ends with `uninstall()`, or when Python exits.

    Raises UsageError for an invalid argument, or if this process is measured already. A loader that
    does not take its settings raises it when it is iterated.
    """
    if hook.current() is not None:
        raise UsageError(
            "this process is measured already; call loadeval.uninstall() before you install again"
        )
    run_settings = RunSettings(
        folder="",
        mode=mode,  # type: ignore[arg-type]  # checked next
        batches=batches,
        redact=redact,
        settings=dict(settings or {}),
        allow_changes=allow_changes,
    )
    check(run_settings)
    name = Path(sys.argv[0]).stem if sys.argv and "ipykernel" not in sys.argv[0] else "notebook"
    output_folder = None if output is None else Path(output)
    name = "python" if redact else name
    folder = new_folder(name or "python", time.strftime("%Y%m%d-%H%M%S"), output_folder)
    said.clear()
    hook.use(Session(replace(run_settings, folder=str(folder))))
    adapters = {name: f"{point.module}:{point.attr}" for name, point in registered().items()}
    finder = Finder(adapters, lambda name: hook.patch(name, adapters.get(name)))
    sys.meta_path.insert(0, finder)
    _finders.append(finder)
    for name in adapters:
        finder.patch(name)
    return folder


def uninstall() -> Path | None:
    """End what `install()` began. Returns the training loader's log; None if there is no log."""
    session = hook.current()
    if session is None:
        return None
    hook.unpatch()
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in _finders]
    _finders.clear()
    session.close()
    return session.main_log

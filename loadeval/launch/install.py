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
from loadeval.launch.inject.loadeval_inject import CLASSES, Finder, said
from loadeval.launch.session import Session, Settings, check, other_modules

if TYPE_CHECKING:
    import os

_finders: list[Any] = []


def install(
    mode: str = "log",
    *,
    batches: int | None = None,
    output: str | os.PathLike[str] | None = None,
    redact: bool = False,
) -> Path:
    """Measure every known loader that this process iterates, from now on: `loadeval run` inside.

    The loader that is iterated with gradients on, between whose batches optimizers make steps, is
    the training loader. It is measured in `mode`; others are logged beside it, in logs of their
    own. `batches` and `redact` are as in LoaderEvaluator.

    Returns the folder of the logs: `output`, which must be new or empty, or one in
    `loadeval-runs`. `uninstall()` ends it, and Python's end does.

    Raises UsageError for an invalid argument, or if this process is measured already.
    """
    if hook.current() is not None:
        raise UsageError(
            "this process is measured already; call loadeval.uninstall() before you install again"
        )
    settings = Settings("", mode, batches, redact)  # type: ignore[arg-type]  # checked next
    check(settings)
    name = Path(sys.argv[0]).stem if sys.argv and "ipykernel" not in sys.argv[0] else "notebook"
    place = None if output is None else Path(output)
    name = "python" if redact else name
    folder = new_folder(name or "python", time.strftime("%Y%m%d-%H%M%S"), place)
    said.clear()
    hook.use(Session(replace(settings, folder=str(folder))))
    names = [*CLASSES, *other_modules()]
    finder = Finder(names, hook.patch)
    sys.meta_path.insert(0, finder)
    _finders.append(finder)
    hook.patch_imported(names)
    return folder


def uninstall() -> Path | None:
    """End what `install()` began. Returns the training loader's log; None if there is no log."""
    session = hook.current()
    if session is None:
        return None
    hook.unpatch()
    sys.meta_path[:] = [one for one in sys.meta_path if one not in _finders]
    _finders.clear()
    session.close()
    return session.main_log

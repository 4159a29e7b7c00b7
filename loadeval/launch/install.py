"""Measure the loaders of this process, or one of them, in a notebook for example."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from loadeval.data.folder import new_folder
from loadeval.data.run import Run
from loadeval.errors import UsageError
from loadeval.evaluator import Measured, Measurement
from loadeval.launch import hook
from loadeval.launch.loadeval_inject import said
from loadeval.launch.session import TORCH, OneLoader, Session
from loadeval.launch.settings import RunSettings, adapters, check
from loadeval.probes import NAMES
from loadeval.settings import Settings


class Installed(Measured):
    """What `install` measures, until you close it, or leave the `with` block.

    Attributes:
        folder: the folder of the logs; None where one loader is measured.
    """

    def __init__(
        self,
        source: Session | OneLoader,
        end: Callable[[], None],
        folder: Path | None = None,
        loader: Any = None,
    ) -> None:
        self.folder = folder
        self._source, self._end = source, end
        self._loader = loader  # what a framework builds is compared with it

    def recorded(self) -> Run:
        """Everything measured so far of the loader, or of the training loader.

        Raises UsageError where no loader was iterated yet.
        """
        measurement = self._source.measurement
        if measurement is None:
            raise UsageError("nothing was measured yet: no known loader was iterated")
        return measurement.recorder.run()

    def close(self) -> None:
        """Stop measuring, and finish the logs. Closing it twice is fine."""
        self._end()
        self._loader = None


def install(
    loader: Any = None,
    mode: str = "log",
    *,
    batches: int | None = None,
    redact: bool = False,
    output: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    allow_changes: bool = False,
    **options: Any,
) -> Installed:
    """Measure every known loader that this process iterates from now on, or the one given.

    **Without a loader** it is as if `loadeval run` had started this process. The training loader is
    iterated with gradients on, and optimizers make steps between its batches. It is measured in
    `mode`; others are logged beside it, in logs of their own. `batches` and `redact` are as in
    LoaderEvaluator. The training loader gets `settings` in place of its own before its first
    epoch, such as {"num_workers": 4}; the others get those whose name begins with "validation.".
    Settings that change what is trained on, such as `batch_size`, need `allow_changes=True`. The
    logs are in the folder `output`, which must be new or empty, or in one in `loadeval-runs`.
    Measuring goes on until you close what is returned, or Python exits.

    **With a loader**, a torch DataLoader, every epoch of it is measured, with no wrapper: pass the
    loader itself to the framework. That includes epochs of loaders that a framework builds from it:
    Lightning does for distributed training, Accelerate in `prepare` and when it resumes in the
    middle of an epoch. Another loader over the same dataset, such as one for validation, is not
    measured. If Accelerate or Fabric has already prepared the loader, what they do with its batches
    counts as part of the step. `mode` and `options` are those of LoaderEvaluator, such as
    `log_file`; if this process measures one loader after another with the same `log_file`, the new
    log gets a number: run-1.jsonl. Measuring goes on until you close what is returned, or the
    loader is garbage-collected.

    Installing again ends what was installed before, of this process or of the same loader.

    Raises UsageError for an invalid argument, for a loader that is no torch DataLoader, or if
    `loadeval run` measures this process already. A loader that does not take its settings raises it
    when it is iterated.
    """
    if options if loader is None else (output or settings or allow_changes):
        raise UsageError(
            "output=, settings= and allow_changes= are for all loaders of a process, and "
            "log_file= and other options of LoaderEvaluator for the one that is given: "
            "install(dataloader, log_file=...)"
        )
    if loader is not None:
        given = {"mode": mode, "probes": NAMES, **options, "batches": batches, "redact": redact}
        return _install_one(loader, Settings(**given))
    if hook.is_of_command():
        raise UsageError("this process is measured already, by `loadeval run`: omit install()")
    own_options = {"mode": mode, "batches": batches, "redact": redact}
    run_settings = RunSettings(own_options, settings or {}, allow_changes)
    check(run_settings)
    if hook.state.session is not None:
        hook.end_session(hook.state.session)
    name = "" if redact else Path(*sys.argv[:1]).stem
    output_folder = None if output is None else Path(output)
    folder = new_folder(name or "python", time.strftime("%Y%m%d-%H%M%S"), output_folder)
    said.clear()
    session = Session(run_settings, folder)
    hook.use(session, adapters())
    return Installed(session, partial(hook.end_session, session), folder)


def _install_one(loader: Any, settings: Settings) -> Installed:
    for wrapped in ("base_dataloader", "_dataloader"):  # by Accelerate, and by Fabric
        loader = getattr(loader, wrapped, loader)
    module = sys.modules.get(f"{TORCH}.dataloader")  # others may put a class of theirs in its place
    if module is None or not isinstance(loader, module.DataLoader):
        raise UsageError(
            f"cannot measure a {type(loader).__name__} in place: expected a torch DataLoader; "
            "wrap other loaders with LoaderEvaluator(loader)"
        )
    for one in list(hook.state.ones):
        if one.loader() is loader:
            one.end()
    one = OneLoader(loader, Measurement(loader, settings), hook.state.ones.remove)
    hook.add(one, {TORCH: adapters()[TORCH]})
    return Installed(one, one.end, loader=loader)

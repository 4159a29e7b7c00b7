"""Waits, in each Python that a measured command starts, for the modules of known frameworks.

Our sitecustomize imports it under a name of its own. Nothing heavy is imported: `importlib.util`
alone takes 10 ms. Only a process that imports a known framework imports a part of loadeval, and
only one that iterates a loader imports the modules that measure.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Patch = Callable[[str, str | None], Iterable[str]]

FOLDER = "LOADEVAL_RUN"
"""The variable with the folder of a run's logs. Without it nothing is measured."""
ADAPTERS = "LOADEVAL_RUN_ADAPTERS"
"""The variable with the registered adapters, as entry points: `module=adapter,module=adapter`."""
CPUS_AT_START = len(os.sched_getaffinity(0))
"""How many CPUs the process may use before the program has imported anything."""
PYTHON_MARK = ".python"
"""An empty file in that folder: it shows that Python was started, and imported this module."""
FAILED_MARK = ".failed"
"""A file in that folder, with a line for each thing that could not be patched or measured."""
REFUSED_MARK = ".refused"
"""A file in that folder: which settings a loader does not take."""
ENOUGH_MARK = ".enough"
"""An empty file in that folder, which the command makes: no new pair of blocks is to begin."""
ENDED_MARK = ".ended"
"""An empty file in that folder, which the command makes before it ends the program by SIGINT."""
ERROR_MARK = ".error"
"""A file in that folder: the error that ended the program."""
MARKS = (PYTHON_MARK, FAILED_MARK, REFUSED_MARK, ENOUGH_MARK, ENDED_MARK, ERROR_MARK)

said: set[str] = set()
"""What `failed` has already said. A program may fail again in each epoch."""


class Finder:
    """Calls `patch` with a module and its adapter once it and its packages are imported.

    `patch` returns further modules to wait for, which have no adapter. All other finders are asked
    for a module, in their order, including those of editable installs.
    """

    def __init__(self, adapters: Mapping[str, str], patch: Patch) -> None:
        self._names: set[str] = set()
        self._watched: set[str] = set()
        self._adapters, self._patch = adapters, patch
        self._imported: list[str] = []
        self._running: list[str] = []  # threads import at once, and a list's methods are atomic
        self._wait_for(adapters)
        self._patch_imported()

    def _wait_for(self, names: Iterable[str]) -> None:
        """Wait for these modules too; those that are imported already are to be patched."""
        for name in names:
            if name in sys.modules and name not in self._names:
                self._imported.append(name)
            self._names.add(name)
            parts = name.split(".")
            self._watched.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the first other finder that knows `name` finds; None if it is not waited for."""
        if name not in self._watched:
            return None
        self._watched.discard(name)  # while others look for it: they may ask all finders too
        try:
            for finder in sys.meta_path:
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if find is None else find(name, path, target)
                if spec is not None:
                    self._patch_after(name, spec.loader)
                    return spec
        finally:
            self._watched.add(name)
        return None

    def _patch_after(self, name: str, loader: Any) -> None:
        """Patch the module once `loader` has run it, and the watched modules that import it."""
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            self._running.append(name)
            try:
                run(module)
                if name in self._names:
                    self._imported.append(name)
            finally:
                self._running.remove(name)
                self._patch_imported()

        try:  # noqa: SIM105 - contextlib takes a millisecond
            loader.exec_module = exec_module
        except AttributeError:  # a loader with slots, whose module is not measured
            pass

    def _patch_imported(self) -> None:
        """Patch what was imported, unless a watched module is being imported or patched.

        A package is incomplete until then, and one adapter may import the module of another.
        """
        while self._imported and not self._running:
            self._running.append("")
            try:
                name = self._imported.pop(0)
                self._wait_for(self._patch(name, self._adapters.get(name)))
            except Exception as error:  # noqa: BLE001 - the program goes on
                failed(error)
            finally:
                self._running.remove("")


def failed(error: BaseException) -> None:
    """Say, once, that this process is not measured; its program goes on."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if text in said:  # said in an earlier epoch
        return
    said.add(text)
    folder = os.environ.get(FOLDER)
    if folder:
        try:
            with open(os.path.join(folder, FAILED_MARK), "a", encoding="utf-8") as file:  # noqa: PTH118, PTH123 - pathlib takes 5 ms
                file.write(f"{text}\n")
        except OSError:
            pass
    if sys.stderr is None:
        return
    try:  # noqa: SIM105 - contextlib takes a millisecond
        print(f"loadeval: not measured ({text}); the program goes on", file=sys.stderr)  # noqa: T201 - the user must see it
    except Exception:  # noqa: BLE001, S110 - stderr is closed, or the program's own object
        pass


def begin(inject: str, patch: Patch) -> None:
    """Wait for known frameworks; then run the sitecustomize that ours hides, if there is one.

    `inject` is the folder of ours. `patch` is called with a module that was imported, perhaps by a
    .pth file before this, and the adapter that is registered for it.
    """
    sys.path[:] = [path for path in sys.path if path != inject]
    folder = os.environ.get(FOLDER)
    if folder:
        try:
            # If that fails, so does writing a log, which is reported.
            mark = os.path.join(folder, PYTHON_MARK)  # noqa: PTH118 - pathlib takes 5 ms
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY, 0o666))
        except OSError:
            pass
        try:
            points = filter(None, os.environ.get(ADAPTERS, "").split(","))
            adapters = dict(point.split("=", 1) for point in points)
            sys.meta_path.insert(0, Finder(adapters, patch))
        except Exception as error:  # noqa: BLE001 - the program goes on
            failed(error)
    import _frozen_importlib_external as external  # noqa: PLC0415 - importlib.machinery takes longer

    spec = external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        hidden = type(sys)("sitecustomize")
        hidden.__spec__, hidden.__file__, hidden.__loader__ = spec, spec.origin, spec.loader
        sys.modules["sitecustomize"] = hidden
        spec.loader.exec_module(hidden)

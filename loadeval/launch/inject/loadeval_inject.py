"""Waits, in each Python that a measured command starts, for the module of a known loader.

Python's sitecustomize, which is beside this file, imports it by a name of its own. Nothing heavy is
imported: `importlib.util` alone takes 10 ms. Only a process that imports a known loader imports
something of loadeval, and only one that iterates it imports what measures.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

FOLDER = "LOADEVAL_RUN"
"""The variable with the folder of a run's logs. Without it nothing is measured."""
MODULES = "LOADEVAL_RUN_MODULES"
"""The variable with the modules that other packages registered adapters for."""
PYTHON_MARK = ".python"
"""An empty file in that folder: Python was started, and read this."""
FAILED_MARK = ".failed"
"""A file in that folder: what could not be patched or measured, a line each."""
CLASSES = {
    "torch.utils.data.dataloader": ("DataLoader",),
    "torchdata.nodes.loader": ("Loader",),
    "nvidia.dali.plugin.base_iterator": ("_DaliBaseIterator",),
    "spdl.dataloader._dataloader": ("DataLoader",),
    "spdl.dataloader._pytorch_dataloader": ("PyTorchDataLoader",),
    "spdl.dataloader._cache_dataloader": ("CacheDataLoader",),
    "spdl.pipeline._pipeline": ("Pipeline",),
    "webdataset.pipeline": ("DataPipeline",),
    "datasets.arrow_dataset": ("Dataset",),
    "datasets.iterable_dataset": ("IterableDataset",),
    "grain._src.python.data_loader": ("DataLoader",),
    "grain._src.python.dataset.dataset": ("MapDataset", "IterDataset"),
    "ray.data.iterator": ("_IterableFromIterator",),
    "keras.src.optimizers.base_optimizer": ("BaseOptimizer",),
    "fastai.optimizer": ("Optimizer",),
}
"""The classes that programs iterate, by their modules; of these and their subclasses `__iter__` is
replaced, of datasets `iter` too, of optimizers what makes a step. StatefulDataLoader and LitData's
loader are subclasses of torch's."""


said: set[str] = set()
"""What `failed` has said: a program may fail in each epoch anew."""


class Finder:
    """Patches each module in `names` once it was imported; other finders find it.

    All of them are asked, in their order: those of editable installs too.
    """

    def __init__(self, names: Iterable[str], patch: Callable[[ModuleType], object]) -> None:
        self._names = set(names)
        self._patch = patch

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the first other finder that knows `name` finds; None if it is not waited for."""
        if name not in self._names:
            return None
        self._names.discard(name)  # while others, who may ask everybody too, look for it
        try:
            for finder in sys.meta_path:
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if find is None else find(name, path, target)
                if spec is not None:
                    self._patch_after(spec)
                    return spec
        finally:
            self._names.add(name)
        return None

    def _patch_after(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            try:
                self._patch(module)
            except Exception as error:  # noqa: BLE001 - the program goes on
                failed(error)

        try:
            loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]  # its class has one
        except AttributeError as error:  # a loader with slots
            failed(error)


def failed(error: BaseException) -> None:
    """Say, once, that this process is not measured; its program goes on."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if text in said:  # of the epoch before
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
        print(f"loadeval: not measured ({text}); the program goes on", file=sys.stderr)  # noqa: T201 - what it is for
    except Exception:  # noqa: BLE001, S110 - it is closed, or a program's own
        pass


def begin() -> None:
    """Wait for known loaders; then run the sitecustomize that this one hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 5 ms
    sys.path[:] = [path for path in sys.path if path != here]
    folder = os.environ.get(FOLDER)
    if folder:
        try:
            _mark(folder)
            others = filter(None, os.environ.get(MODULES, "").split(os.pathsep))
            sys.meta_path.insert(0, Finder([*CLASSES, *others], _patch))
        except Exception as error:  # noqa: BLE001 - the program goes on
            failed(error)
    _run_hidden()


def _mark(folder: str) -> None:
    """Note that Python was started. Where that cannot be, whoever cannot write its log tells."""
    try:
        mark = os.path.join(folder, PYTHON_MARK)  # noqa: PTH118 - pathlib takes 5 ms
        os.close(os.open(mark, os.O_CREAT | os.O_WRONLY, 0o666))
    except OSError:
        pass


def _patch(module: ModuleType) -> None:
    from loadeval.launch import hook  # noqa: PLC0415 - only with a known loader

    hook.patch(module)


def _run_hidden() -> None:
    import _frozen_importlib_external as external  # noqa: PLC0415 - importlib.machinery takes longer

    spec = external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        hidden = type(sys)("sitecustomize")
        hidden.__spec__, hidden.__file__, hidden.__loader__ = spec, spec.origin, spec.loader
        sys.modules["sitecustomize"] = hidden
        spec.loader.exec_module(hidden)

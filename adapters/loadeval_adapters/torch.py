"""torch.utils.data: DataLoader and its subclasses, also inside Lightning, Accelerate and Ignite."""

from __future__ import annotations

import inspect
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from traceback import walk_stack
from typing import Any, ClassVar

from torch import distributed
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset

from loadeval import IterableAdapter, LoaderInfo, LoaderStages, UsageError, Watch, adapter_for
from loadeval_adapters.others import ResumableAdapter

IN_PLACE = "Measure it in place instead: install(dataloader)"
UNPREPARED = (
    "Accelerate is in use, and its prepare() ignores a LoaderEvaluator: it would neither move "
    "batches to the device nor notice the end of an epoch. " + IN_PLACE + " before prepare(), or "
    "wrap what prepare() returns"
)
END_UNSEEN = (
    "Accelerate's loader marks the end of an epoch when it reads the last batch. Only in mode="
    "'log' is that when training gets this batch; in other modes gradients would be accumulated "
    "wrongly. " + IN_PLACE
)
UNSHARDED = (
    "Lightning rebuilds the DataLoader to give each process its part of the data, which it cannot "
    "do with a LoaderEvaluator: every process would train on all of the data. "
    + IN_PLACE
    + ", or use a DistributedSampler"
)
UNREPEATABLE = (
    "Ignite's DeterministicEngine replaces the DataLoader's batch sampler, which it cannot do "
    "with a LoaderEvaluator: the batches would differ. " + IN_PLACE
)
HAS_BEGUN = (
    "this DataLoader has begun an epoch, or was asked for its state, and keeps its workers; change "
    "its settings where it is made"
)

OF_BATCHES = ("batch_size", "drop_last")
"""Settings of a DataLoader's own batch sampler."""
CHANGEABLE = (
    *("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order"),
    *("multiprocessing_context", "timeout", *OF_BATCHES),
)
"""Settings that a loader can be given before its first epoch."""
WITHOUT_WORKERS: dict[str, Any] = {
    "prefetch_factor": None,
    "in_order": True,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}
"""What a DataLoader insists on where `num_workers` is 0; `in_order` means nothing then."""
NAMES = {
    name: name for name in ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
}
"""Settings that loadeval gives advice on, under torch's names."""
TRAINERS: dict[str, dict[str, str]] = {
    "transformers": {name: f"dataloader_{name}" for name in NAMES},
    "ultralytics": {"num_workers": "workers"},
}
"""The arguments of trainers for these settings, keyed by the trainer's package."""
BEGIN_IN_ITER = (
    "torch.utils.data.dataloader",
    "torchdata.stateful_dataloader.stateful_dataloader",
)
"""Modules of loaders that begin nothing before their own `__iter__` is called."""


class PyTorchAdapter(IterableAdapter):
    """Knows a DataLoader's workers, and stops them, persistent ones included."""

    watch = Watch(
        classes={"torch.utils.data.dataloader": ("DataLoader",)},
        inside=("torch.utils.data",),
        # Their loaders iterate a DataLoader, and mark its end for themselves.
        outside=("accelerate", "lightning", "lightning_fabric", "pytorch_lightning"),
        evaluations=(
            ("transformers.trainer", "evaluation_loop"),
            ("keras.src.backend.torch.trainer", "evaluate"),
        ),
    )
    setting_names = NAMES
    distributions: ClassVar[tuple[str, ...]] = ("torch",)

    def epoch(self, loader: Any) -> Iterator[Any]:
        """`iter(loader)`; an empty iterator when Lightning only checks that there is one."""
        # Lightning does not try a DataLoader: that would start workers and draw random numbers.
        if _is_called_from("lightning.pytorch.trainer.conn", "pytorch_lightning.trainer.conn"):
            vars(_unwrapped(loader)).pop("_get_iterator", None)  # of its stages, see there
            return iter(())
        return super().epoch(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """Workers, queue, batch size, pinning and start method of `loader`."""
        inside = _unwrapped(loader)
        # Once its length was asked for, a DataLoader over an iterable dataset warns if it serves
        # more. Only the user's own len() may have that effect.
        asked = getattr(inside, "_IterableDataset_len_called", None)
        info = super().describe(loader)
        if hasattr(inside, "_IterableDataset_len_called"):
            inside._IterableDataset_len_called = asked  # noqa: SLF001 - it undoes what describe() did
        if isinstance(inside, Dataset):
            shards = None
            with suppress(Exception):  # a property of the user's
                shards = getattr(inside, "num_shards", None)
            return replace(info, shards=shards if type(shards) is int else None)
        workers = getattr(inside, "num_workers", None)
        if workers is None:  # a sampler, say
            return info
        # Accelerate's and Fabric's loaders do not always have it.
        device = "cpu" if inside is loader else getattr(loader, "device", None)
        maker, sampler = _maker(inside), inside.batch_sampler
        shards, names = _shards_in(inside.dataset)
        if sampler is None or type(sampler) is BatchSampler:
            is_stream = isinstance(inside.dataset, IterableDataset)  # which chooses by itself
            sampler = None if is_stream else getattr(inside, "sampler", None)
        return replace(
            info,
            workers=workers,
            prefetch_depth=workers * (inside.prefetch_factor or 0),
            batch_size=inside.batch_size or getattr(inside.batch_sampler, "batch_size", None),
            pinned=inside.pin_memory,
            device=None if device is None else str(device),
            start_method=_start_method(inside) if workers else None,
            persistent_workers=inside.persistent_workers,
            ready_batches=0,
            dataset=_name_of(inside.dataset),
            sampler=_name_of(sampler),
            worker_init=_name_of(inside.worker_init_fn),
            in_order=getattr(inside, "in_order", True),  # since torch 2.6
            made_by=maker,
            setting_names={**names, **TRAINERS.get(maker or "", NAMES)},
            shards=shards,
            made_at=None if maker else info.made_at,  # its arguments are given elsewhere
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop the workers of `epoch`, and those that `loader` keeps between epochs."""
        super().release(loader, epoch)
        loader = _unwrapped(loader)
        persistent = getattr(loader, "_iterator", None)
        for iterator in (epoch, persistent):
            shutdown = getattr(iterator, "_shutdown_workers", None)
            if shutdown is not None:
                shutdown()
        if persistent is not None:
            loader._iterator = None  # noqa: SLF001 - the only place where DataLoader keeps it

    def refusal(self, loader: Any, mode: str) -> str | None:
        """Why the training framework would go wrong with a wrapped `loader`; or None."""
        if type(loader).__module__.startswith("lightning") or not hasattr(loader, "sampler"):
            return None  # Fabric has set it up; or it is a Dataset
        if hasattr(loader, "base_dataloader"):  # Accelerate has prepared it
            return None if mode == "log" else END_UNSEEN
        if distributed.is_available() and distributed.is_initialized():
            is_split = isinstance(loader.sampler, DistributedSampler)
            is_split |= isinstance(loader.dataset, IterableDataset)
            is_lightning = _is_called_from("lightning.pytorch.", "pytorch_lightning.")
            if is_lightning and not is_split and distributed.get_world_size() > 1:
                return UNSHARDED
        if _is_called_from("ignite.engine.deterministic"):
            return UNREPEATABLE
        accelerate = sys.modules.get("accelerate.state")
        in_use = accelerate is not None and accelerate.AcceleratorState._shared_state  # noqa: SLF001 - is_initialized() came late
        # Hugging Face's Trainer uses Accelerate, and gets on with a loader that is not prepared.
        return UNPREPARED if in_use and not _is_called_from("transformers.trainer") else None

    def stages(self, loader: Any) -> LoaderStages | None:
        """What times the stages inside a DataLoader; None for a dataset by itself."""
        if not isinstance(_unwrapped(loader), DataLoader):
            return None
        from loadeval_adapters.torch_trace.iterators import (  # noqa: PLC0415 - torch's import need not wait
            DataLoaderStages,
        )

        return DataLoaderStages(_unwrapped)

    def tunable(self, loader: Any) -> Mapping[str, Any]:
        """Arguments of a DataLoader, also of a subclass with a constructor of its own.

        None of one that iterates in a way of its own: it may have begun when it was made.
        """
        iterate = getattr(type(loader), "__iter__", None)  # a Dataset may have none
        if getattr(iterate, "__module__", None) not in BEGIN_IN_ITER:
            return {}
        given = _arguments(loader)
        return {name: given[name] for name in CHANGEABLE if name in given}

    def _change_of_batches(self, loader: Any, name: str, value: Any) -> str | None:
        """See IterableAdapter; workers divide the samples of an iterable-style dataset."""
        is_stream = isinstance(loader.dataset, IterableDataset)
        if name == "num_workers" and is_stream and value != loader.num_workers:
            return f"{name}={value!r} changes how an iterable-style dataset divides its samples"
        return super()._change_of_batches(loader, name, value)

    def change(self, loader: Any, settings: Mapping[str, Any]) -> None:
        """Give `loader` the settings of another DataLoader, whose constructor checks them.

        What was loaded into it, and what a subclass keeps in it, stays. Without workers, settings
        that need some become None or False unless they are among `settings`.
        """
        if getattr(loader, "_iterator", None) is not None:
            raise UsageError(HAS_BEGUN)
        given = _arguments(loader)
        of_workers = {name: value for name, value in WITHOUT_WORKERS.items() if name in given}
        workers = settings.get("num_workers", loader.num_workers)
        insists = {} if workers else of_workers
        again: Any = DataLoader(**{**given, **insists, **settings})
        # In this order: whether a start method is accepted depends on the number of workers.
        changed = [name for name in given if name in settings or name in of_workers]
        if not settings.keys().isdisjoint(OF_BATCHES):
            changed.append("batch_sampler")
        for name in changed:
            object.__setattr__(loader, name, getattr(again, name))  # its own forbids some


class StatefulDataLoaderAdapter(ResumableAdapter, PyTorchAdapter):
    """torchdata's, which has begun its next epoch where it was asked for its state."""

    watch = replace(PyTorchAdapter.watch, inside=("torch.utils.data", "torchdata"))
    distributions: ClassVar[tuple[str, ...]] = ("torch", "torchdata")
    _began_from: dict[str, Any] | None = None

    def epoch(self, loader: Any) -> Iterator[Any]:
        """The rest of an epoch after `load_state_dict`, else a whole one."""
        self._began_from = loader.next_iter_state
        return super().epoch(loader)

    def describe(self, loader: Any) -> LoaderInfo:
        """As a DataLoader's; its workers load for the epoch to come once the state was asked."""
        info = super().describe(loader)
        has_begun = getattr(loader, "_initial_iter_for_state_dict", False)
        return replace(info, ready_batches=info.prefetch_depth) if has_begun else info

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:
        """Stop all workers; a state that the epoch began from is to be loaded again."""
        super().release(loader, epoch)
        loader.load_state_dict(loader.next_iter_state or self._began_from or {})


def _arguments(loader: Any) -> dict[str, Any]:
    """Arguments that make a DataLoader like `loader`."""
    has_own_sampler = loader.batch_sampler is None or loader.batch_size is not None
    implied = {"batch_sampler"} if has_own_sampler else {"batch_size", "sampler", "drop_last"}
    if isinstance(loader.dataset, IterableDataset):
        implied.add("sampler")
    names = list(inspect.signature(DataLoader.__init__).parameters)[1:]
    return {name: getattr(loader, name) for name in names if name not in {"shuffle", *implied}}


def _unwrapped(loader: Any) -> Any:
    """The DataLoader inside Accelerate's or Fabric's wrapper."""
    if type(loader).__module__.startswith("lightning"):
        return getattr(loader, "_dataloader", loader)
    return getattr(loader, "base_dataloader", loader)


def _name_of(thing: Any) -> str | None:
    """The name of a function, or of an instance's class; None for None."""
    if thing is None:
        return None
    inner = getattr(thing, "func", thing)  # of a partial
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


def _shards_in(dataset: Any) -> tuple[int | None, Mapping[str, str]]:
    """How many shards a stream has, and what makes more, as the adapter of its framework tells."""
    if isinstance(dataset, IterableDataset):
        with suppress(Exception):  # methods of the user's
            info = adapter_for(dataset).describe(dataset)
            return info.shards, info.setting_names or {}
    return None, {}


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # Asking for the default without allow_none would fix it for the whole process.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


def _maker(loader: Any) -> str | None:
    """The package of the Trainer that made `loader`; None if no Trainer is known to have.

    The Trainer of transformers sets a function for workers. That of sentence-transformers, which
    takes the same arguments, sets a collator. That of ultralytics makes a class of its own. A
    loader that has torch's iterators may have no collate_fn.
    """
    if type(loader).__module__.startswith("ultralytics."):
        return "ultralytics"
    function = getattr(loader.worker_init_fn, "func", None)  # of a partial
    starts = str(getattr(function, "__module__", None))
    collates = type(getattr(loader, "collate_fn", None)).__module__
    is_known = starts.startswith("transformers.") or collates.startswith("sentence_transformers.")
    return "transformers" if is_known else None


def _is_called_from(*modules: str) -> bool:
    """Whether the call came through a module whose name begins with one of `modules`."""
    frames = walk_stack(sys._getframe())  # noqa: SLF001 - who asks is known nowhere else
    return any(str(frame.f_globals.get("__name__")).startswith(modules) for frame, _ in frames)

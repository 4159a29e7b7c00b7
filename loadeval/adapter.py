"""What adapters are written with, that of any iterable, and who has which."""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import repeat
from types import FunctionType
from typing import Any, ClassVar, Protocol

from loadeval.core.batch import as_count, copied, leaves, survey
from loadeval.data.lines import (
    CodeSamples,
    EventKind,
    LoaderInfo,
    OperatorTimes,
    Readings,
    StageTimes,
    WorkerStart,
)
from loadeval.errors import AskingTheLoader, UsageError, warn

OVERRIDES = "_loadeval_overrides"
"""An attribute of a loader: what it has in place of its program's settings."""
CHANGE_BATCHES = frozenset({"batch_size", "shuffle", "drop_last"})
"""Settings with which training gets other batches, whatever their value."""
PLACES: dict[int, tuple[weakref.ref[Any], str]] = {}
"""The lines in which loaders were made, FILE:LINE, as far as `loadeval run` has noted them.

By the identity of a loader, or of the dataset of one.
"""
GROUP = "loadeval.adapters"
OWN = "loadeval_adapters"
"""The package of the adapters that come with loadeval."""


@dataclass(frozen=True, slots=True)
class StageNote:
    """What should be known of looking into a loader: what is missing and why. It is said once."""

    message: str
    kind: EventKind = "stages missing"


class LoaderStages(Protocol):
    """Times what happens inside one loader. All moments are of `time.perf_counter_ns`.

    What raises here ends looking into the loader, and nothing else. `take` may run in one thread
    while another one begins an epoch.

    It may have a method `look(on: bool)`, which is called between two batches: called with False,
    nothing in the loader is timed until it is called with True. An alternating run looks inside in
    some of its blocks alone, for that takes time.
    """

    def begin(self, loader: Any) -> Callable[[int], object]:
        """An epoch of `loader` begins with the next call of the adapter's `epoch`.

        The function that it returns is called with the epoch's number once its first batch is
        asked for, which may never be.
        """

    def take(
        self,
    ) -> Sequence[StageTimes | WorkerStart | CodeSamples | OperatorTimes | Readings | StageNote]:
        """What was found since the last call, of epochs whose number is known.

        Called now and then, by one thread at a time, also after `close`.
        """

    def close(self) -> None:
        """Leave the loader as it was, from its next epoch on. Called once."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What `loadeval run` and `install` watch for in programs that use a framework.

    Attributes:
        classes: by module, the classes whose `__iter__` begins an epoch, also in their subclasses.
            By default all classes that the registered package defines and its module has.
        methods: other methods of these classes that begin an epoch, and what makes the loader that
            stands for a call: it is called with the object and a function that makes the iterator.
        inside: packages that iterate such loaders within other loaders, which begins no epoch.
        outside: packages with loaders that iterate one of these and pass its batches on, so that
            the inner one is measured.
        evaluations: functions, as module and name, that ask for the batches of an evaluation while
            gradients are on.
    """

    classes: Mapping[str, tuple[str, ...]] | None = None
    methods: Mapping[str, Callable[[Any, Callable[[], Iterator[Any]]], Any]] = field(
        default_factory=dict
    )
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    evaluations: tuple[tuple[str, str], ...] = ()


class IterableAdapter:
    """How loadeval uses one kind of loader: this one, any iterable; subclasses, those they know.

    The samples of a batch are its own count, or the first dimension of an array.

    The attributes of the class declare what is known of a framework before a loader is there:

    Attributes:
        watch: what `loadeval run` watches for.
        setting_names: what the user calls settings that loadeval gives advice on; see LoaderInfo.
        distributions: the packages whose versions a run log has, if they are installed.
    """

    watch: ClassVar[Watch] = Watch()
    setting_names: ClassVar[Mapping[str, str]] = {}
    distributions: ClassVar[tuple[str, ...]] = ()
    _has_said_kept = False

    def epoch(self, loader: Any) -> Iterator[Any]:
        """A new iterator over one epoch, after a reset if the loader needs one.

        It is `iter(loader)`, called only once even if the loader is its own iterator.
        """
        with AskingTheLoader():
            epoch = iter(loader)
        restarts = epoch is loader and isinstance(type(loader).__iter__, FunctionType)
        restarts = restarts or not hasattr(type(epoch), "__iter__")  # a `for` loop needs none
        return begun(epoch) if restarts else epoch

    def samples(self, batch: Any) -> int | None:
        """How many samples `batch` has, or None if unknown; never a guess.

        It is the batch's own count (`num_graphs`, `batch_size`), or the first array's first
        dimension; None where there is neither, or where the arrays of an object of another class
        disagree.
        """
        return survey(batch)[0]

    def nbytes(self, batch: Any) -> int | None:
        """Bytes of all arrays and byte strings in `batch`; None if there are none."""
        return survey(batch)[1]

    def keep(self, batch: Any) -> Any:
        """A copy that does not change when the loader reuses its buffers.

        It has new containers with a clone of each leaf, complete even if it is on a device. What
        cannot be copied faithfully is in them as it is; a warning says so once.
        """
        batch_copy, uncopied = copied(batch)
        if uncopied and not self._has_said_kept:
            self._has_said_kept = True
            kinds = ", ".join(dict.fromkeys(uncopied))
            warn(
                f"batches hold what cannot be copied ({kinds}): it is served as it is, so a loader "
                "that reuses it may have changed it meanwhile. Use mode='log' if that matters"
            )
        # Until a copy on a device is made no other stream may use it, nor the loader its original.
        for device in devices_of(leaves(batch_copy)):
            cuda_in_use().current_stream(device).synchronize()
        return batch_copy

    def describe(self, loader: Any) -> LoaderInfo:
        """What is known about `loader` without reading a batch.

        Its class, its length if it has one, and where it was made if that was seen.
        """
        kind = type(self)
        return LoaderInfo(
            backend=f"{type(loader).__module__}.{type(loader).__qualname__}",
            adapter=f"{kind.__module__}.{kind.__qualname__}",
            length=length_of(loader),
            setting_names=dict(kind.setting_names),
            made_at=made_at(loader),
        )

    def release(self, loader: Any, epoch: Iterator[Any]) -> None:  # noqa: ARG002 - adapters override it
        """Stop the background work of `loader` and its iterator `epoch`.

        Here it closes `epoch` if it can be closed, as a generator can.
        """
        close = getattr(epoch, "close", None)
        if callable(close):
            close()

    def refusal(self, loader: Any, mode: str) -> str | None:  # noqa: ARG002 - adapters override it
        """Why a LoaderEvaluator cannot wrap `loader` here, and what to do instead; or None."""
        return None

    def fence(self) -> None:
        """Wait until the device has finished all queued work; called at the edges of blocks.

        It synchronises with the CUDA devices that torch uses, if any.
        """
        cuda = cuda_in_use()
        for device in devices_in_use(cuda):
            cuda.synchronize(device)

    def stages(self, loader: Any) -> LoaderStages | str | None:  # noqa: ARG002 - adapters override it
        """What times the stages inside `loader`, or why nothing does, in a sentence.

        None where only its threads can be seen.
        """
        return None

    def tunable(self, loader: Any) -> Mapping[str, Any]:  # noqa: ARG002 - adapters override it
        """The settings of `loader` that can be changed, and their present values."""
        return {}

    def change(self, loader: Any, settings: Mapping[str, Any]) -> None:
        """Change `loader` itself: `settings` are some of those that `tunable` has.

        Raises UsageError if they can be set only where it is made.
        """
        raise only_where_made(loader, settings)

    def reconfigure(
        self, loader: Any, settings: Mapping[str, Any], *, allow_changes: bool = False
    ) -> None:
        """Change `loader` itself, as `change` does it.

        Raises UsageError for settings that it does not have, and for other batches without
        `allow_changes`.
        """
        names = self.tunable(loader)
        others = ", ".join(name for name in settings if name not in names)
        if others and not names:
            raise only_where_made(loader, settings)
        if others:
            raise UsageError(
                f"this {type(loader).__name__} has no {others} that can be changed; expected "
                f"{', '.join(names)}"
            )
        for name, value in settings.items():
            change = self._change_of_batches(loader, name, value)
            if change is not None and not allow_changes:
                raise UsageError(other_batches(change))
        self.change(loader, settings)

    def _change_of_batches(self, loader: Any, name: str, value: Any) -> str | None:  # noqa: ARG002 - adapters override it
        """How a setting changes what training gets; None if it gets the same batches."""
        return change_of_batches(name, value)


Adapter = IterableAdapter
"""The type of every adapter, for functions that take one."""


def only_where_made(loader: Any, settings: Mapping[str, Any]) -> UsageError:
    """The error of settings that a loader has from its beginning on."""
    return UsageError(
        f"this {type(loader).__name__} can get other settings only where it is made; "
        f"change {', '.join(settings)} there"
    )


def overrides_of(loader: Any) -> Mapping[str, Any] | None:
    """What `loader` has in place of its program's settings; None if nothing was changed."""
    noted: Mapping[str, Any] | None = getattr(loader, "__dict__", {}).get(OVERRIDES)
    return noted


def change_of_batches(name: str, value: Any) -> str | None:
    """How a setting changes what training gets, whatever the loader is; None for most settings."""
    if name in CHANGE_BATCHES or (name == "in_order" and not value):
        return f"{name}={value!r} changes the samples of a batch, or their order"
    return None


def other_batches(change: str) -> str:
    """The text of the UsageError for settings that change what training gets."""
    return f"{change}; if that is wanted, pass --allow-changes, or allow_changes=True to install()"


def is_iterable(loader: Any) -> bool:
    """Whether `iter(loader)` works: by `__iter__`, or by index like a dataset."""
    return hasattr(type(loader), "__iter__") or hasattr(type(loader), "__getitem__")


def begun(epoch: Iterator[Any]) -> Iterator[Any]:
    """The batches of `epoch`, without a call of its `__iter__`: a `for` does not call it either.

    Several threads may read them, if they may read `epoch`, and who does can go on after an
    exception.
    """
    return map(next, repeat(epoch))


def made_at(loader: Any) -> str | None:
    """The line in which `loader` was made, FILE:LINE; None where nobody saw it."""
    seen, place = PLACES.get(id(loader), (None, None))
    return place if seen is not None and seen() is loader else None


def length_of(loader: Any) -> int | None:
    """`len(loader)`; None if there is none, or if it is 0 or less, as for some endless loaders.

    Also None if it is not a count, or raises anything: training need not ask for it.
    """
    try:
        return as_count(len(loader)) or None
    except Exception:  # noqa: BLE001 - training need not ask for it
        return None


@cache
def registered() -> dict[str, EntryPoint]:
    """Every registered adapter, by the module prefix under which its loaders' classes live."""
    own = (EntryPoint(name, value, GROUP) for name, value in own_adapters().items())
    return {point.name: point for point in (*own, *entry_points(group=GROUP))}


def own_adapters() -> Mapping[str, str]:
    """The adapters that come with loadeval."""
    adapters: Mapping[str, str] = importlib.import_module(OWN).ADAPTERS
    return adapters


def adapter_for(loader: Any) -> Adapter:
    """The adapter that is registered for a class in the loader's MRO, the first with one.

    The longest prefix of the class's module wins. Other loaders are served as iterables. Adapters
    are imported only here, so never for a framework that the user has not imported.
    """
    if point := _registered_for(loader):
        adapter: Adapter = point.load()()
        return adapter
    if not is_iterable(loader):
        raise UsageError(
            f"cannot read batches from {type(loader).__name__!r}: expected an iterable, or a "
            "callable that returns an iterator; pass the loader that the training loop iterates"
        )
    return IterableAdapter()


def makes_loaders(given: Any) -> bool:
    """Whether it is no loader, but a callable that returns one, and is called for each epoch."""
    return callable(given) and not is_iterable(given) and _registered_for(given) is None


def _registered_for(loader: Any) -> EntryPoint | None:
    for kind in type(loader).__mro__:
        parts = kind.__module__.split(".")
        for end in range(len(parts), 0, -1):
            if point := registered().get(".".join(parts[:end])):
                return point
    return None


def cuda_in_use() -> Any:
    """torch.cuda, if torch is imported and has a device; else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def devices_of(leaves: Iterable[Any]) -> set[Any]:
    """The CUDA devices that hold a batch."""
    if cuda_in_use() is None:
        return set()
    tensor = sys.modules["torch"].Tensor
    return {leaf.device for leaf in leaves if isinstance(leaf, tensor) and leaf.is_cuda}


def devices_in_use(cuda: Any) -> list[int]:
    """The devices that torch computes on, as a rule one; asking another one takes its memory."""
    if cuda is None:
        return []
    torch: Any = sys.modules["torch"]
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", cuda.current_device().__eq__)  # noqa: SLF001 - no other tells
    return [device for device in range(cuda.device_count()) if has_context(device)]

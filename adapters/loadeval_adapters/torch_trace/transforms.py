"""Times the transforms of a dataset, each under the name that a user knows it by."""

from __future__ import annotations

import functools
import operator
from contextlib import suppress
from itertools import islice
from threading import get_ident
from time import perf_counter_ns
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
)
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import Dataset

from loadeval_adapters.torch_trace.channel import MOST_TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DATASETS = {"dataset", "datasets", "base_dataset", "datapipe", "source_datapipe"}
"""Attributes that hold further datasets, whatever these are."""
TRANSFORMS = {
    *("transform", "transforms", "tfm", "tfms", "compose", "augment", "augmentation"),
    *("augmentations", "aug", "augs", "preprocess", "preprocessor", "preprocessing", "processor"),
    *("pipeline", "ops", "steps", "tokenizer", "tokenize", "image_processor"),
    *("feature_extractor", "normalize", "loader", "decode", "decoder", "fn", "func", "lambd"),
}
"""Attributes that hold transforms, one or several; others may end with `transform(s)`."""
FUNCTIONS = (
    *(FunctionType, MethodType, BuiltinFunctionType),
    *(MethodDescriptorType, MemberDescriptorType),
)
OPAQUE = (*FUNCTIONS, functools.partial, type)
DEEP, MANY = 12, 64
"""How deep transforms are looked for in one another, and the longest list that is looked into."""
MOST_LOOKED_AT = 10_000
"""So many attributes and items are looked at, which takes some 10 ms."""
OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""Its hooks, and dicts of its parameters and modules."""
FORWARDED = (
    *("__len__", "__iter__", "__getitem__", "__contains__", "__bool__", "__repr__", "__str__"),
    *("__eq__", "__ne__", "__hash__", "__enter__", "__exit__"),
)
TIMED = "_loadeval_timed_by"
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: its methods can be replaced


class Transforms:
    """The transforms of a dataset: their `names`, and the time that each has `spent`.

    `spent` has nanoseconds without those of transforms inside it, and calls, in turns. They count
    only in the thread that is the first item of `thread`; 0 is none. `in_training` tells that this
    is the process that trains: classes that a model may have are left alone there.

    What a transform calls is timed by itself: what is in its attributes named like TRANSFORMS, and
    under any name in its lists, tuples, dicts and torch's containers, nested too, and its child
    modules. The rest of it is then named for its code, `Compose.__call__`. Not looked into are a
    list of the object's own methods, which is its own code, and modules with parameters, which are
    models. Nothing is asked of an object but what it holds: no property is read.

    The class of a transform gets another `__call__`, so that the transform itself stays what it is.
    Where that cannot be, as for functions and torch's own modules, a stand-in takes its place,
    which differs from it in `is` and `type()` alone. `take_out` puts the transforms back for as
    long as nothing is loaded, wherever they were moved in their list meanwhile; what a user's code
    copies while it loads has the stand-ins.

    While the first item of `sizing` is true, `sized` gets how many numbers went into and came out
    of some of them, by name.
    """

    def __init__(self, *, in_training: bool = False) -> None:
        self.names: list[str] = []
        self.spent = [0] * (2 * MOST_TRANSFORMS)
        self.thread = [0]
        self.sizing = [False]
        self.sized: dict[str, list[tuple[int, int]]] = {}
        self._inside = [0]
        self._in_training = in_training
        self._to_look_at = MOST_LOOKED_AT
        self._parts = 0
        self._walked: dict[int, Any] = {}
        self._timed: dict[int, Any] = {}
        self._slots: dict[type, dict[int, int]] = {}
        self._holders: dict[int, Any] = {}
        self._stand_ins: dict[int, Any] = {}
        self._own: dict[int, Any] = {}
        self._classes: list[tuple[type, Any, Any]] = []

    def find(self, dataset: Any) -> None:
        """Time all transforms of `dataset` from now on."""
        try:
            self._look_into(dataset, 0)
        finally:
            self.put_in()

    def put_in(self) -> None:
        """Let the stand-ins be where what they stand for is."""
        for holder in self._holders.values():
            _exchange(holder, self._stand_ins)

    def take_out(self) -> bool:
        """Let what they stand for be where the stand-ins are. Returns whether there are any."""
        for holder in self._holders.values():
            _exchange(holder, self._own)
        return bool(self._holders)

    def pause(self) -> None:
        """Let transforms run as they were found, until `resume`."""
        self.take_out()
        for kind, timed, call in self._classes:
            _exchange_call(kind, timed, call)

    def resume(self) -> None:
        """Time their classes again; `put_in` does the same for those with a stand-in."""
        for kind, timed, call in self._classes:
            _exchange_call(kind, call, timed)

    def restore(self) -> None:
        """Leave everything as it was found."""
        self.pause()
        self._classes.clear()
        for held in (self._holders, self._walked, self._timed, self._stand_ins, self._own):
            held.clear()  # the dataset may be freed now

    def sizes(self) -> dict[str, dict[str, float]]:
        """The numbers in a call's argument and in its result, by column of StageTimes."""
        return {
            column: {
                name: sum(pair[place] for pair in pairs) / len(pairs)
                for name, pairs in self.sized.items()
                if pairs
            }
            for place, column in enumerate(("elements_before", "elements_after"))
        }

    def _look_into(self, dataset: Any, depth: int) -> None:
        if depth > DEEP or id(dataset) in self._walked or issubclass(type(dataset), OPAQUE):
            return
        self._walked[id(dataset)] = dataset
        self._look_at_attributes(dataset, depth, is_transform=False)

    def _look_at_attributes(self, thing: Any, depth: int, *, is_transform: bool) -> None:
        for holder, name, value in attributes_of(thing):
            if self._to_look_at <= 0:
                return
            self._to_look_at -= 1
            bare = name.strip("_")
            if issubclass(type(value), Dataset) or bare in DATASETS:
                is_several = issubclass(type(value), (list, tuple, dict))
                several = islice(_items(value), MANY) if is_several else [(0, value)]
                for _, dataset in several:
                    self._look_into(dataset, depth + 1)
            elif (
                bare in TRANSFORMS
                or bare.endswith(("transform", "transforms"))
                or (is_transform and _holds_parts(thing, name, value))
            ):
                self._time_in(holder, value, depth + 1)

    def _time_in(self, holder: Any, value: Any, depth: int) -> None:
        timed = self._with_time(value, depth)
        if timed is not value and holder is not None:
            self._holders[id(holder)] = holder
            self._stand_ins[id(value)] = timed
            self._own[id(timed)] = value

    def _with_time(self, value: Any, depth: int) -> Any:
        """What is to replace `value`: mostly itself, timed from now on."""
        kind = type(value)
        is_held = issubclass(kind, (list, tuple, dict))
        if id(value) in self._walked or depth > DEEP or not (callable(value) or is_held):
            self._parts += id(value) in self._timed
            return self._timed.get(id(value), value)
        self._walked[id(value)] = value  # keeps its id from being reused
        parts, timed = self._parts, value
        if is_held:
            timed = self._with_times(value, depth + 1)
        elif _is_container(value):
            # A model that trains may be one, too: it keeps its modules.
            if not (self._in_training and _learns(value)):
                self._with_times(vars(value)["_modules"], depth + 1)
        elif not issubclass(kind, type):
            if not issubclass(kind, OPAQUE):
                is_model = issubclass(kind, nn.Module) and _learns(value)
                self._look_at_attributes(value, depth, is_transform=not is_model)
            timed = self._time(value, has_parts=self._parts > parts)
            self._parts += 1
        if self._parts > parts:
            self._timed[id(value)] = self._timed[id(timed)] = timed
        return timed

    def _with_times(self, held: Any, depth: int) -> Any:
        """What is to replace a list, tuple or dict, whose items are timed from now on."""
        if len(held) > MANY or self._to_look_at < len(held):
            return held
        self._to_look_at -= len(held)
        if type(held) is tuple:
            timed = tuple([self._with_time(item, depth) for item in held])
            return held if all(map(operator.is_, timed, held)) else timed
        for _, item in _items(held):
            self._time_in(held, item, depth)
        return held

    def _time(self, item: Any, *, has_parts: bool) -> Any:
        """Time `item` by its class, or by a stand-in; return it untimed once there are too many."""
        kind = type(item)
        is_others = getattr(kind.__call__, TIMED, self) is not self  # of another epoch that lives
        if is_others or len(self.names) == MOST_TRANSFORMS:
            return item
        name, slot = _code_name(kind) if has_parts else _name(item), 2 * len(self.names)
        # The classes of functions cannot be changed, and those of a model are to be left alone.
        is_left_alone = (
            issubclass(kind, OPAQUE)
            or kind.__module__.startswith(("torch.nn", "torch.jit"))
            or (self._in_training and hasattr(kind, "named_parameters"))
            or not kind.__flags__ & HEAP_TYPE
        )
        stand_in = item
        if is_left_alone or not self._time_class(kind, id(item), slot):
            stand_in = _stand_in(item, staticmethod(self._timed_call(item, {}, slot, 0)))
        same = sum(1 for other in self.names if other == name or other.startswith(f"{name} ("))
        self.names.append(f"{name} ({same + 1})" if same else name)
        return stand_in

    def _time_class(self, kind: type, item: int, slot: int) -> bool:
        for base in kind.__mro__:
            if "__call__" in vars(base) and base in self._slots:
                self._slots[base][item] = slot
                return True
        call: Any = vars(kind).get("__call__")
        slots = {item: slot}
        timed = functools.wraps(kind.__call__)(self._timed_call(kind.__call__, slots, slot, 1))
        try:
            type.__setattr__(kind, "__call__", timed)  # past a metaclass that refuses assignments
        except TypeError:
            return False
        self._slots[kind] = slots
        self._classes.append((kind, timed, call))
        return True

    def _timed_call(self, call: Any, slots: dict[int, int], first: int, place: int) -> Any:
        """`call`, timed in the `first` slot; where it is a method, in that of its object.

        A copy that a dataset makes of a transform counts as the first one of its class. What is
        transformed is the argument in that `place`: 0, or 1 of a method.
        """
        spent, inside, thread, sizing = self.spent, self._inside, self.thread, self.sizing

        def size(slot: int, args: tuple[Any, ...]) -> int | None:
            self.sized.setdefault(self.names[slot // 2], [])
            return elements_of(args[place]) if len(args) > place else None

        def timed(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != thread[0]:
                return call(*args, **kwargs)
            slot = slots.get(id(args[0]), first) if place else first
            before = size(slot, args) if sizing[0] else None
            outside = inside[0]
            inside[0] = 0
            start = perf_counter_ns()
            try:
                # Passing on keywords takes longer, even where there are none.
                result = call(*args, **kwargs) if kwargs else call(*args)
            finally:
                took = perf_counter_ns() - start
                spent[slot] += took - inside[0]
                spent[slot + 1] += 1
                inside[0] = outside + took
            if before is not None and (after := elements_of(result)) is not None:
                self.sized[self.names[slot // 2]].append((before, after))
            return result

        setattr(timed, TIMED, self)
        return timed


def elements_of(x: Any) -> int | None:
    """How many numbers an array, a tensor or an image of Pillow's has; None for all else."""
    kind = type(x)
    with suppress(Exception):  # of a class of the user's
        if issubclass(kind, np.ndarray):
            return int(x.size)
        if issubclass(kind, Tensor):
            return int(x.numel())
        if any(base.__module__ == "PIL.Image" for base in kind.__mro__):
            return int(x.width * x.height * len(x.getbands()))
    return None


def _stand_in(item: Any, timed: staticmethod[..., Any]) -> Any:
    """An object like `item` in all but `type()`; its copies and pickles are `item`'s."""

    def get(_: Any, name: str) -> Any:
        if name == "__reduce_ex__":
            return lambda _protocol: (_itself, (item,))
        return getattr(item, name)

    def forwarding(method: Any) -> Any:
        return lambda _, *args: method(item, *args)

    methods: dict[str, Any] = {
        name: forwarding(getattr(type(item), name))
        for name in FORWARDED
        if hasattr(type(item), name)
    }
    methods |= {
        "__slots__": (),
        "__call__": timed,
        "__getattribute__": get,
        "__setattr__": lambda _, name, value: setattr(item, name, value),
        "__delattr__": lambda _, name: delattr(item, name),
    }
    return type(type(item).__name__, (), methods)()


def _itself(item: Any) -> Any:
    return item


def _exchange_call(kind: type, present: Any, other: Any) -> None:
    """Replace the `present` method of a class, unless another tool has; None: it is inherited."""
    if vars(kind).get("__call__") is not present:
        return
    if other is None:
        type.__delattr__(kind, "__call__")
    else:
        type.__setattr__(kind, "__call__", other)


def _name(item: Any) -> str:
    while issubclass(type(item), functools.partial):
        item = item.func
    name = item.__name__ if issubclass(type(item), FUNCTIONS) else type(item).__name__
    return "lambda" if name == "<lambda>" else name


def _code_name(kind: type) -> str:
    """The method that calls the parts of a transform: `Compose.__call__`, or of a module `forward`.

    It is what the code sampler calls it, from Python 3.11 on.
    """
    is_module = issubclass(kind, nn.Module) and kind.forward is not nn.Module.forward
    method = "forward" if is_module else "__call__"
    name: str = getattr(getattr(kind, method), "__qualname__", "").rpartition("<locals>.")[2]
    return name if name.endswith(f".{method}") else f"{kind.__name__}.{method}"


def _holds_parts(thing: Any, name: str, value: Any) -> bool:
    """Whether `value`, which a transform holds under any name, may have what that calls."""
    kind = type(value)
    if name in OF_EVERY_MODULE and issubclass(type(thing), nn.Module):
        return False
    if issubclass(kind, (list, tuple, dict)):
        return len(value) <= MANY and not any(
            type(item) is MethodType and item.__self__ is thing for _, item in _items(value)
        )
    if issubclass(kind, nn.Module):
        is_torchs = kind.__module__.startswith("torch.")
        return (_is_container(value) or not is_torchs) and not _learns(value)
    return False


def _learns(module: nn.Module) -> bool:
    """Whether it has parameters, as a model has; none of its methods is called."""
    modules, seen = [module], {id(module)}
    for inner in modules:
        held = object.__getattribute__(inner, "__dict__")
        if any(parameter is not None for parameter in held.get("_parameters", {}).values()):
            return True
        for child in held.get("_modules", {}).values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                modules.append(child)
    return False


def _is_container(value: Any) -> bool:
    """Whether `value` is a container of torch's, which only calls what is in it."""
    kind = type(value)
    if issubclass(kind, nn.Sequential):
        return kind.forward is nn.Sequential.forward
    return issubclass(kind, (nn.ModuleList, nn.ModuleDict))


def attributes_of(thing: Any) -> Iterator[tuple[Any, str, Any]]:
    """What `thing` itself holds, without asking its class for anything.

    Each with the dict that has it; None for a slot.
    """
    with suppress(AttributeError):  # it has slots alone
        held = object.__getattribute__(thing, "__dict__")
        if issubclass(type(held), dict):
            modules = dict.get(held, "_modules")  # of an nn.Module
            for holder in (held, modules) if issubclass(type(modules), dict) else (held,):
                for name, value in list(islice(_items(holder), MOST_LOOKED_AT)):
                    yield holder, name, value
    for kind in type(thing).__mro__:
        for name, member in list(vars(kind).items()):
            if isinstance(member, MemberDescriptorType):
                with suppress(AttributeError):  # it was not set
                    yield None, name, member.__get__(thing)


def _items(held: Any) -> Iterable[tuple[Any, Any]]:
    """The keys and values of a dict, or of a list or tuple, past any method of its class."""
    if issubclass(type(held), dict):
        return dict.items(held)
    base = list if issubclass(type(held), list) else tuple
    return enumerate(base.__iter__(held))


def _exchange(holder: Any, others: dict[int, Any]) -> None:
    """Let each value in `holder` whose identity is in `others` be replaced by that one."""
    # Past a class that refuses or notes assignments.
    replace: Any = dict.__setitem__ if issubclass(type(holder), dict) else list.__setitem__
    for key, value in list(_items(holder)):
        if id(value) in others:
            replace(holder, key, others[id(value)])

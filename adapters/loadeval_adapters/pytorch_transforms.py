"""Times the transforms of a dataset, each under the name that a user knows it by."""

from __future__ import annotations

import functools
from contextlib import suppress
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

from torch import nn
from torch.utils.data import Dataset

from loadeval_adapters.pytorch_channel import MOST_TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATASETS = {"dataset", "datasets", "base_dataset", "datapipe", "source_datapipe"}
"""Attributes that hold further datasets, whatever these are."""
TRANSFORMS = {
    *("transform", "transforms", "augment", "augmentation", "augmentations", "aug", "augs"),
    *("preprocess", "preprocessor", "preprocessing", "processor", "pipeline", "ops", "steps"),
    *("tokenizer", "tokenize", "image_processor", "feature_extractor", "normalize"),
    *("loader", "decode", "decoder", "fn", "func", "lambd"),
}
"""Attributes that hold transforms, one or several; others may end with `transform(s)`."""
FUNCTIONS = (
    *(FunctionType, MethodType, BuiltinFunctionType),
    *(MethodDescriptorType, MemberDescriptorType),
)
OPAQUE = (*FUNCTIONS, functools.partial, type)
DEEP = 5
MANY = 64
FORWARDED = (
    *("__len__", "__iter__", "__getitem__", "__contains__", "__bool__", "__repr__", "__str__"),
    *("__eq__", "__ne__", "__hash__", "__enter__", "__exit__"),
)
MISSING: Any = object()
TIMED = "_loadeval_timed_by"
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: its methods can be replaced


class Transforms:
    """The transforms of a dataset: their `names`, and the time that each has `spent`.

    `spent` has nanoseconds without those of transforms inside it, and calls, in turns. They count
    only in the thread that is the first item of `thread`; 0 is none. `in_training` tells that this
    is the process that trains: classes that a model may have are left alone there.

    The class of a transform gets another `__call__`, so that the transform itself stays what it is.
    Where that cannot be, as for functions, a stand-in takes its place.
    """

    def __init__(self, *, in_training: bool = False) -> None:
        self.names: list[str] = []
        self.spent = [0] * (2 * MOST_TRANSFORMS)
        self.thread = [0]
        self._inside = [0]
        self._in_training = in_training
        self._walked: dict[int, Any] = {}
        self._timed: dict[int, Any] = {}
        self._slots: dict[type, dict[int, int]] = {}
        self._undo: list[Callable[[], object]] = []

    def find(self, dataset: Any) -> None:
        """Time all transforms of `dataset` from now on."""
        self._look_into(dataset, 0)

    def restore(self) -> None:
        """Leave everything as it was found."""
        while self._undo:
            self._undo.pop()()

    def _look_into(self, thing: Any, depth: int) -> None:
        if depth > DEEP or id(thing) in self._walked or isinstance(thing, OPAQUE):
            return
        self._walked[id(thing)] = thing
        for name, value in _attributes(thing):
            if issubclass(type(value), Dataset) or name.strip("_") in DATASETS:
                for one in _several(value):
                    self._look_into(one, depth + 1)
            elif _holds_transforms(name):
                timed = self._with_time(value, depth + 1)
                if timed is not value:
                    _assign(thing, name, timed)
                    self._undo.append(functools.partial(_assign, thing, name, value))

    def _with_time(self, value: Any, depth: int) -> Any:
        """What is to stand in the place of `value`: mostly itself, timed from now on."""
        if type(value) is tuple and len(value) <= MANY:
            timed = tuple([self._with_time(one, depth) for one in value])
            return value if all(map(_is, timed, value)) else timed
        if isinstance(value, (list, dict)):
            self._time_items(value, depth)
        elif _is_container(value):
            # A model that trains may be one, too: it keeps its modules.
            is_seen = id(value) in self._walked or depth > DEEP
            if not is_seen and not (self._in_training and any(True for _ in value.parameters())):
                self._walked[id(value)] = value
                self._time_items(vars(value)["_modules"], depth + 1)
        elif callable(value) and not isinstance(value, type) and id(value) not in self._timed:
            # First what is inside, so that a container's list is read before it gets stand-ins.
            is_container = any(
                name.strip("_") in TRANSFORMS and isinstance(held, (list, tuple, nn.ModuleList))
                for name, held in _attributes(value)
            )
            self._look_into(value, depth)
            timed = value if is_container else self._time(value)
            self._walked[id(value)] = self._timed[id(value)] = (
                value  # keeps its id from being reused
            )
            self._timed[id(value)] = timed
            self._timed[id(timed)] = timed
        return self._timed.get(id(value), value)

    def _time_items(self, held: list[Any] | dict[Any, Any], depth: int) -> None:
        items = list(held.items() if isinstance(held, dict) else enumerate(held))
        for key, one in items if len(items) <= MANY else ():
            timed = self._with_time(one, depth)
            if timed is not one:
                held[key] = timed
                self._undo.append(functools.partial(held.__setitem__, key, one))

    def _time(self, item: Any) -> Any:
        """`item` itself, its class timed, or a stand-in; itself untimed once there are too many."""
        kind = type(item)
        is_others = getattr(kind.__call__, TIMED, self) is not self  # of another epoch that lives
        if is_others or len(self.names) == MOST_TRANSFORMS:
            return item
        slot = 2 * len(self.names)
        if self._can_time_class(kind) and self._time_class(kind, id(item), slot):
            stand_in = item
        else:
            stand_in = self._stand_in(item, slot)
        name = _name(item)
        same = sum(1 for other in self.names if other == name or other.startswith(f"{name} ("))
        self.names.append(f"{name} ({same + 1})" if same else name)
        return stand_in

    def _can_time_class(self, kind: type) -> bool:
        is_function = issubclass(kind, OPAQUE)
        is_torch = kind.__module__.startswith(("torch.nn", "torch.jit"))
        may_be_of_a_model = self._in_training and hasattr(kind, "named_parameters")
        return bool(
            kind.__flags__ & HEAP_TYPE and not (is_function or is_torch or may_be_of_a_model)
        )

    def _time_class(self, kind: type, item: int, slot: int) -> bool:
        for base in kind.__mro__:
            if "__call__" in vars(base) and base in self._slots:
                self._slots[base][item] = slot
                return True
        call: Any = vars(kind).get("__call__")
        # A copy that a dataset makes of a transform counts as the first one of its class.
        timed = self._timed_method(kind.__call__, slots := {item: slot}, slot)
        try:
            # Past a metaclass that refuses assignments.
            type.__setattr__(kind, "__call__", timed)
        except TypeError:
            return False
        self._slots[kind] = slots
        self._undo.append(functools.partial(_restore, kind, timed, call))
        return True

    def _timed_method(self, call: Any, slots: dict[int, int], first: int) -> Any:
        spent, inside, thread = self.spent, self._inside, self.thread

        @functools.wraps(call)
        def __call__(self: Any, x: Any = MISSING, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it stands in for that
            is_simple = not args and not kwargs and x is not MISSING
            if not is_simple and x is not MISSING:
                args = (x, *args)
            if get_ident() != thread[0]:
                return call(self, x) if is_simple else call(self, *args, **kwargs)
            slot = slots.get(id(self), first)
            outside, inside[0] = inside[0], 0
            start = perf_counter_ns()
            try:
                # To pass on any arguments takes twice as long.
                return call(self, x) if is_simple else call(self, *args, **kwargs)
            finally:
                took = perf_counter_ns() - start
                spent[slot] += took - inside[0]
                spent[slot + 1] += 1
                inside[0] = outside + took

        setattr(__call__, TIMED, self)
        return __call__

    def _timed_function(self, call: Any, slot: int) -> Any:
        spent, inside, thread = self.spent, self._inside, self.thread

        def timed(x: Any = MISSING, /, *args: Any, **kwargs: Any) -> Any:
            is_simple = not args and not kwargs and x is not MISSING
            if not is_simple and x is not MISSING:
                args = (x, *args)
            if get_ident() != thread[0]:
                return call(x) if is_simple else call(*args, **kwargs)
            outside, inside[0] = inside[0], 0
            start = perf_counter_ns()
            try:
                return call(x) if is_simple else call(*args, **kwargs)
            finally:
                took = perf_counter_ns() - start
                spent[slot] += took - inside[0]
                spent[slot + 1] += 1
                inside[0] = outside + took

        setattr(timed, TIMED, self)
        return timed

    def _stand_in(self, item: Any, slot: int) -> Any:
        """Something that is as `item` in all but `type()`; its copies and pickles are `item`'s."""

        def get(_: Any, name: str) -> Any:
            return (
                (lambda _protocol: (_itself, (item,)))
                if name == "__reduce_ex__"
                else getattr(item, name)
            )

        methods: dict[str, Any] = {
            name: _forwarding(item, name) for name in FORWARDED if hasattr(type(item), name)
        }
        methods |= {
            "__slots__": (),
            "__call__": staticmethod(self._timed_function(item, slot)),
            "__getattribute__": get,
            "__setattr__": lambda _, name, value: setattr(item, name, value),
            "__delattr__": lambda _, name: delattr(item, name),
        }
        return type(type(item).__name__, (), methods)()


def _forwarding(item: Any, name: str) -> Any:
    method = getattr(type(item), name)
    return lambda _, *args: method(item, *args)


def _itself(item: Any) -> Any:
    return item


def _is(a: Any, b: Any) -> bool:
    return a is b


def _restore(kind: type, timed: Any, call: Any) -> None:
    if vars(kind).get("__call__") is not timed:
        return  # another tool has replaced it
    if call is None:
        type.__delattr__(kind, "__call__")
    else:
        type.__setattr__(kind, "__call__", call)


def _name(item: Any) -> str:
    while isinstance(item, functools.partial):
        item = item.func
    name = item.__name__ if isinstance(item, FUNCTIONS) else type(item).__name__
    return "lambda" if name == "<lambda>" else name


def _holds_transforms(name: str) -> bool:
    bare = name.strip("_")
    return bare in TRANSFORMS or bare.endswith(("transform", "transforms"))


def _is_container(value: Any) -> bool:
    """Whether it is one of torch's, which does nothing but call what is in it."""
    if isinstance(value, nn.Sequential):
        return type(value).forward is nn.Sequential.forward
    return isinstance(value, (nn.ModuleList, nn.ModuleDict))


def _several(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return list(value[:MANY]) if isinstance(value, (list, tuple)) else [value]


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """What `thing` itself holds, without asking its class for anything."""
    with suppress(AttributeError):
        held = object.__getattribute__(thing, "__dict__")
        if isinstance(held, dict):
            yield from list(held.items())
            if isinstance(held.get("_modules"), dict):  # of an nn.Module
                yield from list(held["_modules"].items())
    for kind in type(thing).__mro__:
        for name, member in list(vars(kind).items()):
            if isinstance(member, MemberDescriptorType):
                with suppress(AttributeError):
                    yield name, member.__get__(thing)


def _assign(thing: Any, name: str, value: Any) -> None:
    held = None
    with suppress(AttributeError):
        held = object.__getattribute__(thing, "__dict__")
    of_module = held.get("_modules") if isinstance(held, dict) else None
    if isinstance(held, dict) and name in held:
        held[name] = value  # past a class that refuses or watches assignments
    elif isinstance(of_module, dict) and name in of_module:
        of_module[name] = value
    else:
        object.__setattr__(thing, name, value)

"""Times the transforms of a dataset, each under the name that a user knows it by."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import get_ident
from time import perf_counter_ns
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import Dataset

from loadeval_adapters.torch_trace.code import Activity

DATASETS = {"dataset", "datasets", "base_dataset", "datapipe", "source_datapipe"}
"""Attributes that hold further datasets, whatever these are."""
TRANSFORMS = re.compile(
    r".*transforms?|tfms?|compose|augment|augmentations?|augs?|preprocess|preprocessor"
    r"|preprocessing|processor|image_processor|feature_extractor|tokenizer?|normalize"
    r"|pipeline|ops|steps|loader|decoder?|fn|func|lambd"
)
"""Attributes that hold transforms, one or several."""
FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, functools.partial)
MOST_TRANSFORMS = 24
"""How many transforms are timed separately."""
LONGEST_NAME = 60
DEEP, MANY = 12, 64
"""How deep transforms are looked for in one another, and the longest list that is looked into."""
MOST_LOOKED_AT = 10_000
"""So many attributes and items are looked at, which takes some 10 ms."""
OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""Its hooks, and dicts of its parameters and modules."""
TIMED = "_loadeval_timed_by"


class Timer:
    """One transform, in one batch: nanoseconds without those of transforms inside it, and calls."""

    __slots__ = ("calls", "name", "ns")

    def __init__(self, name: str) -> None:
        self.name, self.ns, self.calls = name, 0, 0


class Transforms:
    """The transforms of a dataset, timed in the thread that `activity` has while it fetches.

    Looked for are attributes of datasets that are named like TRANSFORMS, and in a transform these,
    its lists, tuples and dicts, and its child modules. One that has others inside is named for its
    code, `Compose.__call__`. Modules with parameters are models, and left alone. Nothing is asked
    of an object but what it holds: no property is read.

    The class of a transform gets another `__call__`, so that the transform stays what it is. In
    place of a function in a list or dict there is a TimedFunction; `in_training`, in the process
    that trains, only while a batch is fetched, and wherever it was moved meanwhile. There classes
    that a model may have are left alone.

    While `is_sizing`, `sized` gets how many numbers went into transforms and came out, by name, in
    the order in which they were called.
    """

    def __init__(self, dataset: Any, activity: Activity, *, in_training: bool = False) -> None:
        self.timers: list[Timer] = []
        self.is_sizing = True
        self.sized: dict[str, list[tuple[int, int]]] = {}
        self.activity = activity
        self._dataset, self._in_training = dataset, in_training
        self._is_searched = False
        self._to_look_at = MOST_LOOKED_AT
        self._inside_ns = 0
        self._found: dict[int, tuple[Any, bool]] = {}  # with the object: its identity stays its own
        self._of_class: dict[type, dict[int, Timer]] = {}
        self._classes: list[tuple[type, Any, Any]] = []
        self._holders: dict[int, Any] = {}
        self._functions: dict[int, TimedFunction] = {}

    def look(self, on: bool) -> None:
        """Time transforms from now on, or let them run as they were found."""
        for kind, timed, own in self._classes:
            _exchange_call(kind, *((own, timed) if on else (timed, own)))
        try:
            if on and not self._is_searched:
                self._is_searched = True
                self._look_into(self._dataset, 0)
        finally:
            self._exchange(is_timed=on and not self._in_training)

    def begin(self) -> None:
        """A batch is fetched next."""
        for timer in self.timers:
            timer.ns = timer.calls = 0
        if self._in_training:
            self._exchange(is_timed=True)

    def end(self) -> None:
        """It was fetched."""
        if self._in_training:
            self._exchange(is_timed=False)

    def restore(self) -> None:
        """Leave everything as it was found."""
        self.look(on=False)
        for known in (self._found, self._of_class, self._holders, self._functions):
            known.clear()  # the dataset may be freed now
        self.timers, self._classes, self._dataset = [], [], None
        self._is_searched = True

    def _look_into(self, dataset: Any, depth: int) -> None:
        kind = type(dataset)
        if depth > DEEP or id(dataset) in self._found or issubclass(kind, (*FUNCTIONS, type)):
            return
        self._found[id(dataset)] = dataset, False
        for held, name, value in self._attributes(dataset):
            if issubclass(type(value), Dataset) or name.strip("_") in DATASETS:
                is_several = issubclass(type(value), (list, tuple, dict))
                for _, each in list(_items(value))[:MANY] if is_several else [("", value)]:
                    self._look_into(each, depth + 1)
            elif _is_named_like_one(name):
                self._time_in(held, value, depth + 1)

    def _attributes(self, thing: Any) -> Iterator[tuple[Any, str, Any]]:
        """What `thing` holds, without asking its class: the dict that has it, name and value."""
        with suppress(AttributeError):  # it has slots alone
            held = object.__getattribute__(thing, "__dict__")
            is_module = issubclass(type(thing), nn.Module)
            for holder in (held, held["_modules"]) if is_module else (held,):
                for name, value in list(dict.items(holder)):
                    self._to_look_at -= 1
                    if self._to_look_at >= 0 and not (is_module and name in OF_EVERY_MODULE):
                        yield holder, name, value

    def _time_in(self, held: Any, value: Any, depth: int) -> bool:
        """Time a transform, or those in a list, from now on; whether there are any."""
        kind = type(value)
        if id(value) in self._found:
            return self._found[id(value)][1]
        if issubclass(kind, FUNCTIONS):
            return self._time_function(held, value)
        is_list, is_module = issubclass(kind, (list, tuple, dict)), issubclass(kind, nn.Module)
        if depth > DEEP or issubclass(kind, type) or not (is_list or callable(value)):
            return False
        if is_module and next(nn.Module.parameters(value), None) is not None:
            return False  # a model
        self._found[id(value)] = value, False
        if is_list:
            if len(value) > MANY or self._to_look_at < len(value):
                return False
            self._to_look_at -= len(value)
            parts = [(value, part) for _, part in _items(value)]
        else:
            parts = [
                (holder, part)
                for holder, name, part in self._attributes(value)
                if _is_named_like_one(name)
                or issubclass(type(part), (list, tuple, dict, nn.Module))
            ]
        has_parts = sum(self._time_in(*part, depth + 1) for part in parts) > 0  # all are timed
        # A user knows what holds torch's own modules, and these may be a model's, too.
        is_own = not is_list and not kind.__module__.startswith(("torch.nn", "torch.jit"))
        is_models = self._in_training and is_module  # torch.compile cannot compile our `__call__`
        is_timed = is_own and not is_models and self._time_class(value, has_parts=has_parts)
        self._found[id(value)] = value, is_timed or has_parts
        return is_timed or has_parts

    def _timer(self, name: str) -> Timer | None:
        """Another timer; None if there are too many."""
        if len(self.timers) == MOST_TRANSFORMS:
            return None
        name = name[:LONGEST_NAME]
        names = [timer.name for timer in self.timers]
        same = sum(1 for other in names if other == name or other.startswith(f"{name} ("))
        timer = Timer(f"{name} ({same + 1})" if same else name)
        self.timers.append(timer)
        return timer

    def _time_function(self, held: Any, function: Any) -> bool:
        is_own = type(function) is MethodType and id(function.__self__) in self._found
        if is_own or not issubclass(type(held), (list, dict)):
            return False
        if id(function) not in self._functions:
            named = function
            while issubclass(type(named), functools.partial):
                named = named.func
            name = f"{getattr(named, '__name__', None) or type(named).__name__}"
            timer = self._timer("lambda" if name == "<lambda>" else name)
            if timer is None:
                return False
            timed = self._timed_call(function, {}, timer, 0)
            self._functions[id(function)] = TimedFunction(function, timed)
        self._holders[id(held)] = held
        return True

    def _time_class(self, item: Any, *, has_parts: bool) -> bool:
        kind = type(item)
        if getattr(kind.__call__, TIMED, self) is not self:  # of another epoch that lives
            return False
        timer = self._timer(_code_name(kind) if has_parts else kind.__name__)
        if timer is None:
            return False
        for base in kind.__mro__:
            if "__call__" in vars(base) and base in self._of_class:
                self._of_class[base][id(item)] = timer
                return True
        own: Any = vars(kind).get("__call__")
        timers = {id(item): timer}
        timed = functools.wraps(kind.__call__)(self._timed_call(kind.__call__, timers, timer, 1))
        try:
            type.__setattr__(kind, "__call__", timed)  # past a metaclass that refuses assignments
        except TypeError:  # it is not written in Python
            self.timers.pop()
            return False
        self._of_class[kind] = timers
        self._classes.append((kind, timed, own))
        return True

    def _timed_call(
        self, call: Any, timers: dict[int, Timer], first: Timer, place: int
    ) -> Callable[..., Any]:
        """`call`, timed by the `first` timer; where it is a method, by that of its object.

        A copy that a dataset makes of a transform counts as the first one of its class. What is
        transformed is the argument in that `place`: 0, or 1 of a method.
        """
        activity = self.activity

        def timed(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != activity.thread:
                return call(*args, **kwargs)
            timer = timers.get(id(args[0]), first) if place else first
            before = None
            if self.is_sizing:
                sizes = self.sized.setdefault(timer.name, [])
                before = elements_of(args[place]) if len(args) > place else None
            outside_ns, self._inside_ns = self._inside_ns, 0
            start_ns = perf_counter_ns()
            try:
                # Passing on keywords takes longer, even where there are none.
                result = call(*args, **kwargs) if kwargs else call(*args)
            finally:
                took_ns = perf_counter_ns() - start_ns
                timer.ns += took_ns - self._inside_ns
                timer.calls += 1
                self._inside_ns = outside_ns + took_ns
            if before is not None and (after := elements_of(result)) is not None:
                sizes.append((before, after))
            return result

        setattr(timed, TIMED, self)
        return timed

    def _exchange(self, *, is_timed: bool) -> None:
        """Let timed functions be where those are that they stand for, or these where they are."""
        for held in self._holders.values():
            # Past a class that refuses or notes assignments.
            replace: Any = dict.__setitem__ if issubclass(type(held), dict) else list.__setitem__
            for key, value in list(_items(held)):
                own = value.own if type(value) is TimedFunction else value
                timed = self._functions.get(id(own))
                if timed is not None and value is not (timed if is_timed else own):
                    replace(held, key, timed if is_timed else own)


class TimedFunction:
    """Stands for a function that is timed: its `is` and `type()` alone differ."""

    def __init__(self, own: Any, timed: Callable[..., Any]) -> None:
        self.own = own
        self._timed = timed

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """That of the function, for isinstance()."""
        return type(self.own)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        return self._timed(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Its copies and pickles are those of the function."""
        return _itself, (self.own,)


def _itself(item: Any) -> Any:
    return item


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


def _exchange_call(kind: type, present: Any, other: Any) -> None:
    """Replace the `present` method of a class, unless another tool has; None: it is inherited."""
    if vars(kind).get("__call__") is not present:
        return
    if other is None:
        type.__delattr__(kind, "__call__")
    else:
        type.__setattr__(kind, "__call__", other)


def _code_name(kind: type) -> str:
    """The method that calls the parts of a transform: `Compose.__call__`, or of a module `forward`.

    It is what the code sampler calls it, from Python 3.11 on.
    """
    is_module = issubclass(kind, nn.Module) and kind.forward is not nn.Module.forward
    method = "forward" if is_module else "__call__"
    name: str = getattr(getattr(kind, method), "__qualname__", "").rpartition("<locals>.")[2]
    return name if name.endswith(f".{method}") else f"{kind.__name__}.{method}"


def _is_named_like_one(name: Any) -> bool:
    return TRANSFORMS.fullmatch(str(name).strip("_")) is not None


def _items(held: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and values of a dict, or of a list or tuple, past any method of its class."""
    if issubclass(type(held), dict):
        return iter(dict.items(held))
    base = list if issubclass(type(held), list) else tuple
    return enumerate(base.__iter__(held))

"""How many tensors a batch has: each takes its own way from a worker to the training process."""

from __future__ import annotations

from contextlib import suppress
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module

from loadeval_adapters.pytorch_channel import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
CLOSED = (type, FunctionType, MethodType, ModuleType, Module)
"""What is no part of a batch that has it."""
MOST_NODES = 10_000
"""How many nodes of a batch are looked at; that takes some milliseconds."""


def tensors_in(batch: Any) -> int:
    """The tensors of `batch`, each once; UNKNOWN where it has too many nodes to look at.

    What a container holds is read as Python keeps it: no method of its class is called.
    """
    walked: dict[int, Any] = {}  # held, so that no other object gets the number of one
    waiting, count = [batch], 0
    while waiting:
        node = waiting.pop()
        kind: Any = type(node)
        if kind in PLAIN or id(node) in walked:
            continue
        if len(walked) >= MOST_NODES:
            return UNKNOWN
        walked[id(node)] = node
        if issubclass(kind, Tensor):
            count += 1
            continue
        if issubclass(kind, CLOSED):
            continue
        if issubclass(kind, dict):
            waiting.extend(dict.values(node))
        elif issubclass(kind, list):
            waiting.extend(list.__iter__(node))
        elif issubclass(kind, tuple):
            waiting.extend(tuple.__iter__(node))
        waiting.extend(_attributes_of(node, kind))
    return count


def _attributes_of(node: Any, kind: Any) -> Iterator[Any]:
    try:
        own = object.__getattribute__(node, "__dict__")
    except Exception:  # noqa: BLE001 - it has none, or a property of anybody's class fails
        own = None
    if type(own) is dict:
        yield from own.values()
    for base in kind.__mro__:
        for slot in vars(base).values():
            if type(slot) is MemberDescriptorType:
                with suppress(AttributeError):  # it was never set
                    yield slot.__get__(node)

"""Standing in for a loader: its truth, its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadeval.runtime.measurement import Measurement

OWN = frozenset({"_loader", "_measurement", "_closer"})
"""What a LoaderEvaluator keeps in itself."""


class LoaderProxy:
    """Has every attribute of `_loader`, to read and to write, beside its own.

    Its own are those that its class has, and those named OWN.
    """

    _loader: Any
    _measurement: Measurement

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if _is_special(name) or name in OWN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "dataset":
            self._measurement.adapter.dataset_was_read()
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN or _is_special(name) or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self._loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._loader, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self._loader)})


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")

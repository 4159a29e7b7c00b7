"""Makes a loader with other settings, and checks that it has them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from loadeval.analysis.tuning import OF_WORKERS, WORKERS
from loadeval.errors import UsageError
from loadeval.runtime.adapter import is_iterable
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadeval.analysis.tuning import Point

NEUTRAL: Mapping[str, Any] = {
    "prefetch_factor": None,
    "in_order": True,
    "persistent_workers": False,
    "multiprocessing_context": None,
}
"""What a DataLoader without workers takes for those in OF_WORKERS."""
DEFAULTS: Mapping[str, Any] = {**NEUTRAL, "prefetch_factor": 2, "pin_memory": False}
"""What a DataLoader with workers takes where it is told nothing."""


UNKNOWN_NAME = "unexpected keyword argument"
"""In what Python says of a call with a name that is not known."""


class LoaderMaker:
    """Makes loaders with settings. `present` are those of today, and `loader` has them.

    Raises UsageError where `make` can make no loader, and what it raises.
    """

    def __init__(self, make: Any, settings: Mapping[str, Any]) -> None:
        self._make: Callable[..., Any]
        self._known: Mapping[str, Any] = {}
        if callable(make) and not is_iterable(make):
            self._make, self.present = make, dict(settings)
            self._names = _parameters(make)
        else:
            adapter = adapter_for(make)
            self._make = lambda **changed: adapter.reconfigured(make, changed)
            self.present = dict(settings)
            self._known = adapter.tunable(make)
            self._names = set(self._known)
        try:
            self.loader = self.make(self.present)
        except TypeError as error:
            if UNKNOWN_NAME not in str(error):
                raise
            raise UsageError(
                f"the loader does not take all of settings={self.present}: {error}; expected "
                "settings that it can be made with, such as num_workers"
            ) from error
        self.check(self.loader, self.present)

    def make(self, settings: Mapping[str, Any]) -> Any:
        """A new loader."""
        return self._make(**settings)

    def takes(self, name: str) -> bool:
        """Whether the loader has such a setting, and it can be passed on."""
        accepted = self._names is None or name in self._names
        named = name in self.present or name in self._known
        return accepted and (named or hasattr(self.loader, name))

    def accepts(self, name: str) -> bool:
        """Whether it can be passed on."""
        return self._names is None or name in self._names

    def value(self, name: str) -> Any:
        """The present value of a setting."""
        for found in (self.present.get(name), self._known.get(name)):
            if found is not None:
                return found
        found = getattr(self.loader, name, None)
        return DEFAULTS.get(name) if found is None else found

    def settings(self, point: Point) -> dict[str, Any]:
        """What to pass to `make`: what was passed before, and what is different in `point`."""
        found = dict(self.present)
        if point.get(WORKERS) == 0:
            found |= {name: NEUTRAL[name] for name in OF_WORKERS if name in found}
        return found | {name: value for name, value in point.items() if value != self.value(name)}

    def check(self, loader: Any, settings: Mapping[str, Any]) -> None:
        """Raises UsageError for a loader that does not have the settings."""
        adapter = adapter_for(loader)
        info = adapter.describe(loader)
        has = {
            WORKERS: info.workers,
            "batch_size": info.batch_size,
            "persistent_workers": info.persistent_workers,
        }
        for name, found in has.items():
            wanted = settings.get(name)
            if wanted is not None and found is not None and found != wanted:
                raise UsageError(
                    f"make({name}={wanted!r}) returned a loader with {name}={found!r}; expected a "
                    "function that passes its settings on: lambda **settings: "
                    "DataLoader(dataset, **settings)"
                )


def _parameters(make: Callable[..., Any]) -> set[str] | None:
    """The names that `make` takes by keyword; None is any."""
    try:
        found = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_KEYWORD for one in found):
        return None
    return {one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}

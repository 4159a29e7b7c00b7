"""Makes a loader with other settings, and checks that it has them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from loadeval.analysis.predict.tuning import OF_WORKERS, WORKERS
from loadeval.errors import UsageError
from loadeval.runtime.adapter import is_iterable
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loadeval.analysis.predict.tuning import Point

CLIMBED = ("num_workers", "prefetch_factor", "prefetch_depth")
"""Settings that are doubled and halved where nothing is predicted, as LoaderInfo calls them."""
COMMON = ("num_workers", "num_threads", "prefetch_factor", "buffer_size")
"""Common names of such settings, for loaders whose adapter names none."""
UNKNOWN_NAME = "unexpected keyword argument"
"""Part of Python's message for a call with an unknown keyword."""


class LoaderMaker:
    """Makes loaders with settings. `present` are the present ones, and `loader` has them.

    `climbed` are the settings that may be doubled and halved, by their names, and `of_cpus` those
    that more CPUs than there are would not help.

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
        adapter = adapter_for(self.loader)
        self._defaults: Mapping[str, Any] = getattr(adapter, "defaults", {})
        self._without_workers: Mapping[str, Any] = getattr(adapter, "without_workers", {})
        names = adapter.describe(self.loader).setting_names or {}
        own_names = [names[name] for name in CLIMBED if name in names]
        self.climbed = [name for name in own_names or COMMON if self.takes(name)]
        self.of_cpus = {names.get(WORKERS, WORKERS), *COMMON[:2]}

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
        for value in (self.present.get(name), self._known.get(name)):
            if value is not None:
                return value
        value = getattr(self.loader, name, None)
        return self._defaults.get(name) if value is None else value

    def settings(self, point: Point) -> dict[str, Any]:
        """What to pass to `make`: what was passed before, and what is different in `point`."""
        settings = dict(self.present)
        if point.get(WORKERS) == 0:
            named = [name for name in OF_WORKERS if name in settings]
            settings |= {name: self._without_workers.get(name) for name in named}
        changed = {name: value for name, value in point.items() if value != self.value(name)}
        return settings | changed

    def check(self, loader: Any, settings: Mapping[str, Any]) -> None:
        """Raises UsageError for a loader that does not have the settings."""
        adapter = adapter_for(loader)
        info = adapter.describe(loader)
        has = {
            WORKERS: info.workers,
            "batch_size": info.batch_size,
            "persistent_workers": info.persistent_workers,
        }
        for name, actual in has.items():
            wanted = settings.get(name)
            if wanted is not None and actual is not None and actual != wanted:
                raise UsageError(
                    f"make({name}={wanted!r}) returned a loader with {name}={actual!r}; expected a "
                    "function that passes its settings on: lambda **settings: "
                    "DataLoader(dataset, **settings)"
                )


def _parameters(make: Callable[..., Any]) -> set[str] | None:
    """The names that `make` takes by keyword; None: any name."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }

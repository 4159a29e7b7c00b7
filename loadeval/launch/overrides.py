"""Gives loaders other settings than their program did, before their first epoch."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from loadeval.errors import LoadevalError, UsageError
from loadeval.launch.settings import VALIDATION
from loadeval.runtime.adapter import OVERRIDES, overrides_of
from loadeval.runtime.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.launch.settings import RunSettings


class Overrides:
    """The settings that loaders get by their role.

    A loader that trains keeps them when it is evaluated too.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._training: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        for name, value in settings.settings.items():
            of_role = self._others if name.startswith(VALIDATION) else self._training
            of_role[name.removeprefix(VALIDATION)] = value
        self._allow_changes = settings.allow_changes

    def apply(self, loader: Any, *, trains: bool) -> None:
        """Give `loader` the settings of its role, unless it has them.

        Raises UsageError where it does not take them. A warning that is turned into an error passes
        through.
        """
        wanted = self._training if trains else self._others
        present = overrides_of(loader)
        if present is not None and (not trains or present.items() >= wanted.items()):
            return
        if wanted:
            self._reconfigure(loader, wanted)
            with suppress(TypeError):  # it has no attributes of its own
                vars(loader)[OVERRIDES] = wanted

    def _reconfigure(self, loader: Any, settings: Mapping[str, Any]) -> None:
        try:
            adapter_for(loader).reconfigure(loader, settings, allow_changes=self._allow_changes)
        except (LoadevalError, Warning):
            raise
        except Exception as error:
            wanted = ", ".join(f"{name}={value!r}" for name, value in settings.items())
            raise UsageError(f"{type(loader).__name__} does not take {wanted}: {error}") from error

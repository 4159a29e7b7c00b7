"""What `loadeval run` and `install` tell the processes that they measure.

Also: how a loader gets other settings than its program gave it, before its first epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from loadeval.adapter import (
    OVERRIDES,
    adapter_for,
    change_of_batches,
    other_batches,
    overrides_of,
    own_adapters,
    registered,
)
from loadeval.errors import LoadevalError, UsageError
from loadeval.settings import Settings

SETTINGS = "LOADEVAL_RUN_SETTINGS"
"""The variable with the RunSettings, as JSON."""
VALIDATION = "validation."
"""The names of settings for loaders other than the training loader begin so."""
KNOWN = (
    *("num_workers", "num_threads", "batch_size", "prefetch_factor", "persistent_workers"),
    *("pin_memory", "in_order", "drop_last", "multiprocessing_context", "timeout"),
    "buffer_size",
)
"""What the loaders take whose adapters come with loadeval."""
AS_JSON = {"True": "true", "False": "false", "None": "null"}
"""What Python writes otherwise than JSON."""


@dataclass(frozen=True)
class RunSettings:
    """What `loadeval run` tells the processes of its command, by their environment.

    `options` are those of LoaderEvaluator for the training loader, its mode among them; others are
    logged, and only the first training loader is tracked. The training loader gets `settings` in
    place of its own, other loaders those whose name begins with VALIDATION; with `allow_changes`
    also such as change what is trained on.
    """

    options: Mapping[str, Any] = field(default_factory=lambda: {"mode": "log"})
    settings: Mapping[str, Any] = field(default_factory=dict)
    allow_changes: bool = False


def adapters() -> dict[str, str]:
    """The registered adapters, by the module whose loaders they are for."""
    return {name: f"{point.module}:{point.attr}" for name, point in registered().items()}


def settings_in(words: Iterable[str]) -> dict[str, Any]:
    """The settings in words such as `num_workers=4`. Raises UsageError for others."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"--set {word} has no value; expected NAME=VALUE, as num_workers=4")
        if name in settings:
            raise UsageError(f"--set {name} is given twice; leave one out")
        settings[name] = value_in(text)
    return settings


def value_in(text: str) -> Any:
    """The value of a setting that is written so."""
    try:
        return json.loads(AS_JSON.get(text, text))
    except ValueError:  # such as the name of a start method
        return text


def check(settings: RunSettings) -> None:
    """Raises UsageError for an option that is not valid, and for settings of no loader."""
    mode = settings.options["mode"]
    if mode not in {"log", "alternate"}:
        raise UsageError(
            f"mode is {mode!r}; expected 'log' or 'alternate', or a loader to replay: "
            "install(loader, 'replay')"
        )
    Settings(**settings.options)
    for name, value in settings.settings.items():
        own_name = name.removeprefix(VALIDATION)
        # The adapter of another package may know others.
        if own_name not in KNOWN and registered().keys() <= own_adapters().keys():
            near = get_close_matches(own_name, KNOWN, 1) or [f"one of {', '.join(KNOWN)}"]
            raise UsageError(
                f"no loader that loadeval knows has the setting {own_name}; expected {near[0]}"
            )
        if not isinstance(value, (int, float, str, list, type(None))):  # a log has it
            raise UsageError(f"{name} is {value!r}; expected a number, text, True, False or None")
        if own_name == "num_workers" and (type(value) is not int or value < 0):
            raise UsageError(f"{name} is {value!r}; expected a whole number, 0 or more")
        change = change_of_batches(own_name, value)
        if change is not None and not settings.allow_changes:
            raise UsageError(other_batches(change))


def override(loader: Any, settings: RunSettings, *, trains: bool) -> None:
    """Give `loader` the settings of its role, unless it has them.

    A loader that trains keeps them when it is evaluated too. Raises UsageError where it does not
    take them. A warning that is turned into an error passes through.
    """
    wanted = {
        name.removeprefix(VALIDATION): value
        for name, value in settings.settings.items()
        if name.startswith(VALIDATION) is not trains
    }
    present = overrides_of(loader)
    has_them = present is not None and (not trains or present.items() >= wanted.items())
    if not wanted or has_them:
        return
    try:
        adapter_for(loader).reconfigure(loader, wanted, allow_changes=settings.allow_changes)
    except (LoadevalError, Warning):
        raise
    except Exception as error:
        named = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
        raise UsageError(f"{type(loader).__name__} does not take {named}: {error}") from error
    with suppress(TypeError):  # it has no attributes of its own
        vars(loader)[OVERRIDES] = wanted

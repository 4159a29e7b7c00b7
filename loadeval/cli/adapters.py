"""`loadeval adapters`: which loaders have an adapter, and which of their frameworks are here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from loadeval.cli.console import AsJson, print_json, print_table
from loadeval.runtime.registry import registrations

if TYPE_CHECKING:
    from loadeval.runtime.registry import Registration


def adapters(as_json: AsJson = False) -> None:
    """List the registered adapters and their frameworks.

    An adapter serves loaders whose class lives in its module or below; of several the one with
    the longest module name. Any other loader is served as an iterable. Nothing is imported.
    """
    registered = registrations()
    if as_json:
        print_json([dataclasses.asdict(registration) for registration in registered])
    else:
        print_table(
            list(map(_row, registered)), ("module", "adapter", "registered by", "framework")
        )


def _row(registration: Registration) -> tuple[str, str, str, str]:
    by = _versioned(registration.distribution, registration.distribution_version) or "unknown"
    framework = (
        _versioned(registration.framework, registration.framework_version)
        or "installed, version unknown"
    )
    return (
        registration.module,
        registration.adapter,
        by,
        framework if registration.installed else "not installed",
    )


def _versioned(name: str | None, version: str | None) -> str | None:
    return None if name is None else f"{name} {version}"

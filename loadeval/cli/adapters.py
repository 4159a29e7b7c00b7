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
    found = registrations()
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
    else:
        print_table(list(map(_row, found)), ("module", "adapter", "registered by", "framework"))


def _row(one: Registration) -> tuple[str, str, str, str]:
    by = _versioned(one.distribution, one.distribution_version) or "unknown"
    framework = _versioned(one.framework, one.framework_version) or "installed, version unknown"
    return one.module, one.adapter, by, framework if one.installed else "not installed"


def _versioned(name: str | None, version: str | None) -> str | None:
    return None if name is None else f"{name} {version}"

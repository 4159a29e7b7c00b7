"""What is read of the machine beside the batches: its GPUs, its host."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

PROBES = {"gpu": "loadeval.probes.gpu:GPUProbe", "host": "loadeval.probes.host:HostProbe"}
OF_THREADS = ("loadeval.probes.threads:ThreadsProbe", "loadeval.probes.threads:PythonLockProbe")
"""They are imported only where they are wanted: `import loadeval` stays quick."""
NAMES = tuple(PROBES)
ATTRIBUTES = ("name", "every", "open", "read", "close")


def probes_named(chosen: Iterable[Any], *, threads: bool = False) -> tuple[Any, ...]:
    """New probes, those of names in NAMES and others as they are.

    With `threads` also those of the threads of this process, unless no probe was chosen. Raises
    UsageError for what is neither a name nor a probe.
    """
    probes = []
    for each in chosen:
        if isinstance(each, str) and each in PROBES:
            probes.append(resolve_name(PROBES[each])())
        elif isinstance(each, str) or not all(hasattr(each, part) for part in ATTRIBUTES):
            raise UsageError(
                f"probes holds {each!r}; expected 'gpu', 'host' or an object with "
                f"{', '.join(ATTRIBUTES)}; pass probes=() for none"
            )
        else:
            probes.append(each)
    if threads and probes:
        probes += [resolve_name(probe)() for probe in OF_THREADS]
    return tuple(probes)

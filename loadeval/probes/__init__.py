"""What is read of the machine beside the batches: its GPUs, its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = ("gpu", "host")
ATTRIBUTES = ("name", "every", "open", "read", "close")


def probes_named(chosen: Iterable[Any], *, threads: bool = False) -> tuple[Any, ...]:
    """New probes, those of names in NAMES and others as they are.

    With `threads` also one of the threads of this process, unless no probe was chosen. Raises
    UsageError for what is neither a name nor a probe.
    """
    probes = tuple(map(_probe, chosen))
    if not threads or not probes or any(probe.name == "threads" for probe in probes):
        return probes
    from loadeval.probes.threads import (  # noqa: PLC0415 - kept out of `import loadeval`
        PythonLockProbe,
        ThreadsProbe,
    )

    return (*probes, ThreadsProbe(), PythonLockProbe())


def _probe(chosen: Any) -> Any:
    if chosen == "gpu":
        from loadeval.probes.gpu import GPUProbe  # noqa: PLC0415 - kept out of `import loadeval`

        return GPUProbe()
    if chosen == "host":
        from loadeval.probes.host import HostProbe  # noqa: PLC0415 - kept out of `import loadeval`

        return HostProbe()
    if isinstance(chosen, str) or not all(hasattr(chosen, part) for part in ATTRIBUTES):
        raise UsageError(
            f"probes holds {chosen!r}; expected 'gpu', 'host' or an object with "
            f"{', '.join(ATTRIBUTES)}; pass probes=() for none"
        )
    return chosen

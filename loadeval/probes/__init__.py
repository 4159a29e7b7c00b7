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
    found = tuple(map(_probe, chosen))
    if not threads or not found or any(one.name == "threads" for one in found):
        return found
    from loadeval.probes.threads import (  # noqa: PLC0415 - as below
        PythonLockProbe,
        ThreadsProbe,
    )

    return (*found, ThreadsProbe(), PythonLockProbe())


def _probe(one: Any) -> Any:
    if one == "gpu":
        from loadeval.probes.gpu import GPUProbe  # noqa: PLC0415 - kept out of `import loadeval`

        return GPUProbe()
    if one == "host":
        from loadeval.probes.host import HostProbe  # noqa: PLC0415 - as above

        return HostProbe()
    if isinstance(one, str) or not all(hasattr(one, part) for part in ATTRIBUTES):
        raise UsageError(
            f"probes holds {one!r}; expected 'gpu', 'host' or an object with "
            f"{', '.join(ATTRIBUTES)}; pass probes=() for none"
        )
    return one

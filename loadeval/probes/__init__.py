"""What is read of the machine beside the batches: its GPUs, its host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError

if TYPE_CHECKING:
    from loadeval.data.lines import CodeSamples

PROBES = {"gpu": "loadeval.probes.gpu:GPUProbe", "host": "loadeval.probes.host:HostProbe"}
OF_THREADS = ("loadeval.probes.threads:ThreadsProbe", "loadeval.probes.threads:PythonLockProbe")
"""They are imported only where they are wanted: `import loadeval` stays quick."""
NAMES = tuple(PROBES)


class Probe:
    """Reads one kind of thing about the machine. Called by one thread at a time.

    `name` names its readings; it is read at one in `every` ticks of `probe_interval_s`. One that
    `is_light` is read in all blocks of an alternating run, others in those that are for the
    instruments alone, and, with `at_edges`, at the edges of all.
    """

    name: str
    every = 1
    at_edges = True
    is_light = False

    def open(self) -> None:
        """Start. Raises ProbeError, with the reason, if there is nothing to read here."""

    def read(self) -> Mapping[str, Mapping[str, float | None] | str | CodeSamples]:
        """The quantities of each subject now; None is not known.

        Text instead of quantities says why that subject has none from now on. CodeSamples are a
        line of the log as they are, but for their time. Raises ProbeError, with the reason, if
        there is nothing left to read.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release what `open` acquired."""


def probes_named(chosen: Iterable[Any], *, threads: bool = False) -> list[Any]:
    """New probes, those of names in NAMES and others as they are.

    With `threads` also those of the threads of this process, unless no probe was chosen. Raises
    UsageError for what is neither a name nor a probe.
    """
    probes = []
    for each in chosen:
        if isinstance(each, str) and each in PROBES:
            probes.append(resolve_name(PROBES[each])())
        elif not isinstance(each, Probe) or not hasattr(each, "name"):
            raise UsageError(
                f"probes holds {each!r}; expected 'gpu', 'host' or a loadeval.probes.Probe with a "
                "name; pass probes=() for none"
            )
        else:
            probes.append(each)
    if threads and probes:
        probes += [resolve_name(probe)() for probe in OF_THREADS]
    return probes

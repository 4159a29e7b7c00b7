"""What passing batches from workers takes, where the run had none to show it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.predict.prediction import (
    Assumption,
)
from loadeval.analysis.remark import Remark

if TYPE_CHECKING:
    from loadeval.analysis.predict.costs import Costs
    from loadeval.analysis.predict.recorded import (
        Recorded,
    )

HAND_OVER_NS = 200_000
"""Pickling a batch takes so long, and receiving it, where the run had no workers to show it."""
PICKLE_TENSOR_NS = 50_000
RECEIVE_TENSOR_NS = (300_000, 900_000)
"""What each tensor adds to that, for the worker is asked for a file descriptor.

The latter with all CPUs in use, as docs/how-it-measures.md tells.
"""
PIPE_NS_PER_BYTE = (1.0, 2.0)
"""What each byte of a batch without tensors adds to it: it goes through a pipe."""
SHARED_NS_PER_BYTE = 0.7
"""Collating into shared memory, not into a process's own, takes so much more for each byte."""


def handed_over(recorded: Recorded, costs: Costs, *, hindered: bool = False) -> Costs:
    """`costs` of a run without workers, as if these handed the batches over.

    Receiving needs Python's lock in the worker too: `hindered` is if that is busy all the time.
    """
    passing_ns = _passing_ns(recorded, hindered=hindered)
    pickle_ns, receive_ns = (np.full(len(costs), each_ns) for each_ns in passing_ns)
    shared_ns = 0.0 if recorded.tensors == 0 else SHARED_NS_PER_BYTE * (recorded.batch_bytes or 0.0)
    return replace(
        costs,
        cpu_ns=costs.cpu_ns + shared_ns,
        pickle_ns=pickle_ns,
        receive_ns=receive_ns,
        lock_ns=math.inf if hindered and recorded.tensors else 0.0,
    )


def assumed_of_first_workers(recorded: Recorded) -> list[Remark]:
    """What is assumed of workers where the run had none."""
    _, receive_ns = _passing_ns(recorded)
    return [
        Remark(Assumption.HAND_OVER_USUAL, {"hand_over_ns": receive_ns}),
        Remark(Assumption.WORKERS_START, {"start_ns": recorded.start_ns}),
        *([Remark(Assumption.TENSORS_NOT_COUNTED)] if recorded.tensors is None else []),
    ]


def _passing_ns(recorded: Recorded, *, hindered: bool = False) -> tuple[float, float]:
    """What pickling and receiving a batch takes by what it has; few tensors are not counted."""
    if recorded.tensors == 0:
        pickle_ns, receive_ns = ((recorded.batch_bytes or 0.0) * each for each in PIPE_NS_PER_BYTE)
    else:
        pickle_ns, receive_ns = (
            (recorded.tensors or 0.0) * each
            for each in (PICKLE_TENSOR_NS, RECEIVE_TENSOR_NS[hindered])
        )
    return HAND_OVER_NS + pickle_ns, HAND_OVER_NS + receive_ns

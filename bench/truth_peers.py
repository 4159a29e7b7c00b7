"""The speed-up of one case by our peers.

Apart from the runs of ours, as each spawned worker of a case imports those again.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from nvidia.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator as DALIEvaluator
from spdl.dataloader import CacheDataLoader

from bench.truth_runs import steps, total_s

if TYPE_CHECKING:
    from bench.zoo.truth import Case

CACHED = 20


def dali(case: Case) -> float:
    """What its tutorial computes: the total of a log run over that of a replay run."""
    count = min(case.peers_batches, case.batches)
    with steps(case, count, runs=2) as step:
        real_s = total_s(DALIEvaluator(case.loader(count), mode="log"), step)
        replay = DALIEvaluator(case.loader(count), mode="replay", num_cached_batches=CACHED)
        return real_s / total_s(replay, step)


def spdl(case: Case) -> float:
    """A run's mean iteration over that of a second run, once it is served from the cache."""
    count = min(case.peers_batches, case.batches)
    kept = min(CACHED, count // 2)
    with steps(case, count, runs=2) as step:
        real_s = total_s(case.loader(count), step) / count
        cached = iter(CacheDataLoader(case.loader(count), kept, kept, count))
        total_s(islice(cached, kept), step)
        return real_s / (total_s(cached, step) / (count - kept))

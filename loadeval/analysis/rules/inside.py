"""A loader that was looked into: what its stages were waited for, and what fixing one gains."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from loadeval.analysis.inside.formats import slow_format
from loadeval.analysis.inside.stages import FUTEX
from loadeval.analysis.inside.timeline import Stage
from loadeval.analysis.predict.recorded import Recorded
from loadeval.analysis.predict.whatif import LoaderModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.inside.formats import SlowFormat
    from loadeval.analysis.inside.stages import CodeLine, StageReport, WorkerTime
    from loadeval.analysis.inside.transforms import TransformTime
    from loadeval.analysis.predict.change import Change
    from loadeval.analysis.predict.costs import Costs
    from loadeval.analysis.predict.simulation import Setting

LEAST_GAIN = 0.02
"""What would gain less than this share of the iteration is no cause."""
DOMINATES = 0.4
"""A transform or function that takes this share of fetching and collating a batch is named."""
LARGEST_PART = 0.3
"""Where no transform does, the largest of several that do together is named from this share on."""
TOKENISER = re.compile("tokeni[sz]", re.IGNORECASE)
"""Functions and classes that tokenise are called so: `PreTrainedTokenizerFast`, `tokenise`."""
CHARGED = 0.2
"""A stage that takes this share of the loader's time is a cause of its own."""
MOSTLY_BLOCKED = 0.4
"""Workers that are blocked for this share of fetching and collating need no CPU."""
SLOWER_WORKER = 1.5
"""A worker is slow that takes so many times as long as the median one."""
CROWDED_OUT = 0.5
"""Workers wait mostly for others where these use this share of the CPUs, and they wait as long."""
FEWEST_BATCHES = 4
"""A worker must have loaded so many batches before it is said to be slow."""


@dataclass(frozen=True)
class Inside:
    """A loader that was looked into, and the replay of its present settings."""

    recorded: Recorded

    @cached_property
    def model(self) -> LoaderModel:
        """What changing it would bring."""
        return LoaderModel([self.recorded])

    @property
    def stages(self) -> StageReport:
        """Where its time goes."""
        return self.recorded.stages

    @property
    def costs(self) -> Costs:
        """What its batches take, as recorded."""
        return self.recorded.costs

    @property
    def setting(self) -> Setting:
        """The loader's settings, with those of its `workers` that have something to do."""
        return self.recorded.setting

    @property
    def workers(self) -> int:
        """The number of the loader's workers."""
        return self.recorded.loader.workers or 0

    def gain(self, changes: Sequence[Change]) -> float:
        """The share of the waiting that is gone with `changes`, 0 to 1."""
        present = self.model.present
        lost = 1 - present.costs.step_ns / present.iteration_ns
        if lost < LEAST_GAIN:
            return 0.0
        return min(max((1 - self.model.share_left(reduce(add, changes))) / lost, 0.0), 1.0)

    def charged(self, *stages: Stage) -> float:
        """The share of the loader's time that training waited for some stages."""
        shares = [self.stages.share_of(stage) for stage in stages]
        charged_ns = sum(share.charged_ns for share in shares if share is not None)
        return charged_ns / self.stages.total_ns if self.stages.total_ns else 0.0

    @property
    def computing_cpus(self) -> float:
        """CPUs that loading and steps compute on, by the CPU time of a batch and of its step."""
        costs, stages = self.costs, self.stages
        training_ns = costs.step_ns * costs.step_cpus + float(
            (costs.index_ns + costs.receive_ns).mean()
        )
        workers_ns = (stages.cpu_ns or 0.0) + (stages.other_cpu_ns or 0.0)
        return (training_ns + workers_ns) / self.recorded.measured_ns

    @property
    def mostly_blocked(self) -> bool:
        """Whether workers are blocked for so long that they need no CPU for themselves."""
        return self.recorded.blocked >= MOSTLY_BLOCKED

    @property
    def crowded_out(self) -> bool:
        """Whether workers mostly wait for CPUs that others use, and would keep up if they did not.

        Then no code of theirs is slow.
        """
        cpus, others_cpus = self.setting.cpus, self.setting.others_cpus
        is_taken = cpus is not None and others_cpus >= CROWDED_OUT * cpus
        return is_taken and self.keeps_up and self.recorded.run_queue >= CROWDED_OUT

    @property
    def keeps_up(self) -> bool:
        """Whether workers with a CPU each would take no longer for a batch than a step does.

        That is a step with a CPU of its own, too.
        """
        alone_ns = float(self.costs.off_the_run_queue().fetch_ns.mean())
        return alone_ns <= self.recorded.undisturbed_ns * max(self.setting.workers, 1)

    @property
    def line(self) -> CodeLine | None:
        """The line of code that workers were seen in most often, in what not only calls transforms.

        Until Python 3.10 a method has no name of its class.
        """
        callers = self.stages.callers
        only_calls = {*callers, *(caller.rpartition(".")[2] for caller in callers)}
        return next((line for line in self.stages.code if line.function not in only_calls), None)

    @cached_property
    def slow_format(self) -> SlowFormat | None:
        """The form of the data that makes it slow to read; None where none does."""
        batch_bytes = self.recorded.summary.bytes_per_batch
        return slow_format(self.stages, self.line, batch_bytes, DOMINATES)

    @property
    def part(self) -> TransformTime | None:
        """The transform that takes so much that it is named; None where none does."""
        transforms, line = self.stages.transforms, self.line
        if transforms and transforms[0].share >= DOMINATES:
            # In its own code may be transforms that are not timed, such as a closure's.
            in_line = transforms[0].calls_others and line is not None and line.share >= DOMINATES
            return None if in_line else transforms[0]
        largest = next((part for part in transforms if not part.calls_others), None)
        if largest is None or 1 - sum(part.share for part in transforms) >= DOMINATES:
            return None
        return largest if largest.share >= LARGEST_PART else None

    @property
    def computes(self) -> bool:
        """Whether training waits for workers that fetch, and have a CPU for most of that."""
        has_cpu = not self.mostly_blocked and not self.crowded_out
        return has_cpu and self.charged(Stage.FETCH, Stage.COLLATE) >= CHARGED

    @cached_property
    def tokenisers(self) -> dict[str, float]:
        """What has a name like a tokeniser's, and its share of fetching and collating.

        Lines of code, functions that lines call, or transforms: what takes longest, for a call may
        be seen as not all of them.
        """
        stages = self.stages
        lines = [(line.name, f"{line.function} {line.leaf}", line.share) for line in stages.code]
        calls = [(call.name, call.function, call.share) for call in stages.calls]
        transforms = [(part.name, part.name, part.share) for part in stages.transforms]
        seen = [
            {name: share for name, text, share in parts if TOKENISER.search(text)}
            for parts in (lines, calls, transforms)
        ]
        return max(seen, key=lambda shares: sum(shares.values()))

    @property
    def tokenising(self) -> float:
        """The share of all of these."""
        return min(sum(self.tokenisers.values()), 1.0)

    @property
    def tokenises(self) -> bool:
        """Whether training waits for workers that tokenise for a large part of their time.

        They are blocked meanwhile, by a futex, where threads of the tokeniser do it.
        """
        line = self.stages.blocked_line
        by_threads = line is not None and FUTEX in line.blocked_in
        charged = self.charged(Stage.FETCH, Stage.COLLATE) >= CHARGED
        is_at_work = not self.crowded_out and (by_threads or not self.mostly_blocked)
        return self.tokenising >= DOMINATES and charged and is_at_work

    @property
    def collates(self) -> bool:
        """Whether training waits for workers that collate for a large part of their time."""
        collate_ns, fetch_ns = self.stages.collate_ns, self.stages.fetch_ns
        return collate_ns >= DOMINATES * (collate_ns + fetch_ns) > 0 and (
            not self.crowded_out and self.charged(Stage.FETCH, Stage.COLLATE) >= CHARGED
        )

    @property
    def slow_worker(self) -> tuple[WorkerTime, float] | None:
        """The worker that is slower than the others in all it does, and what these take in ns."""
        workers = [worker for worker in self.stages.workers if worker.batches >= FEWEST_BATCHES]
        if len(workers) <= 1:
            return None
        slowest = max(workers, key=lambda worker: worker.typical_ns)
        others_ns = float(
            np.median([worker.typical_ns for worker in workers if worker is not slowest])
        )
        slow_ns = max(SLOWER_WORKER * others_ns, 1.0)
        return (slowest, others_ns) if slowest.typical_ns >= slow_ns else None

    @property
    def waiting_worker(self) -> tuple[WorkerTime, float] | None:
        """The same, if it would not be slow without waiting for a CPU."""
        number = None if self.slow_worker is None else self.slow_worker[0].worker
        is_own = self.costs.worker == number
        if not is_own.any() or is_own.all():  # there is none, or it made no batch that counts
            return None
        taken_ns = self.costs.fetch_ns - self.costs.run_queue_ns
        own_ns, others_ns = (float(np.median(taken_ns[of])) for of in (is_own, ~is_own))
        return self.slow_worker if own_ns < SLOWER_WORKER * others_ns else None

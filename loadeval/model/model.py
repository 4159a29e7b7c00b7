"""What training would do under other settings of its loader, or with cheaper code.

A recorded loader is simulated as it is, and as it would be: a prediction is what the one takes over
what the other does. What is not known of it is a range, whose ends are simulated too: how much more
CPU time a batch takes for each further CPU in use, and whether storage that workers wait for has
each of them wait by itself, as by latency, or serves no more in total, as by bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from loadeval.data.columns import UNKNOWN, Columns, mean_known
from loadeval.data.run import Run
from loadeval.errors import UsageError
from loadeval.estimate.gap import Gap, throughput
from loadeval.estimate.gap import gap as gap_of
from loadeval.estimate.metrics import cpus as cpus_of
from loadeval.estimate.stats import SIGMAS, Estimate
from loadeval.estimate.steady import epoch_lengths, length_of_epochs, once_per_run
from loadeval.inside.stages import SLEEPS, Stages, blockage
from loadeval.inside.stages import stages as stages_of
from loadeval.model.costs import (
    RESUME_NS,
    Change,
    computed_ns,
    costs_of,
    handed_over,
    in_share,
    read_in_turn,
    resized,
    scaled,
    start_ns,
    work_of,
)
from loadeval.model.simulate import LEAST_CPU, Simulated, simulate

GROWTH, GROWTH_ERROR = 0.04, 0.04
"""For each further CPU in use a batch takes this share more CPU time; and one standard error."""
SLOWED, SLOWED_ERROR = 4.0, 0.5
"""How many times as long a step of several threads takes as its share of the CPUs says where it
lacks them: threads that wait for each other spin. The error is of its logarithm."""
LEAST_ERROR = {"growth": 0.02, "step_slowed": 0.2}
"""The least error of what a run shows of either, for its steps and batches differ. That is where a
step computes all the time: the less it does, the more of its growth has other reasons."""
TRIED = {"growth": (0.0, 0.06, 0.12, 0.3), "step_slowed": (1.0, 2.0, 4.0, 8.0, 16.0)}
"""Values between which one is looked for that explains what was measured."""
LEAST_HELP = 0.03
"""What makes an iteration shorter by less is no help."""
NO_EFFECT = 0.01
"""A change of less than this share of the iteration has no effect."""
CALIBRATIONS, SCALES = 3, (0.6, 1.6)
"""What fetching takes is scaled in so many steps of Newton's at most, by no less and no more."""
BLOCKAGE_MATTERS = 0.2
"""From this share of fetching on it matters whether blocked time would grow with more workers."""
MOSTLY = 0.8
"""When fewer of the batches are without a slow sample, that is what batches are like."""
UNLIKE = 0.15
"""A simulation of the run as it is that is further from what was measured leaves something out:
three times the median error of predictions, see docs/how-it-measures.md."""
USUAL_ERROR, ERROR_OF_CHANGE = 0.03, 0.1
"""Any prediction may be off by this share, and by more for each factor of e that it is from what
was measured; see docs/how-it-measures.md."""
CROWDED, MOST_CROWDED, CROWDED_ERROR = 0.03, 0.12, 0.12
"""Where workers and training are more than the CPUs, an iteration takes longer by this share for
each of them, and by that at most, if they are in use all the time; and how far off that may be."""
MATTERS = 0.05
"""A share of the time that matters."""
ENOUGH = 0.98
"""As many workers as reach this share of the best throughput are enough."""
USUAL_PREFETCH = 2
"""Torch keeps so many batches ready for each worker, unless told otherwise."""

AS_IT_IS = Change()
NOTHING_GAINED = Estimate(1.0, 1.0, 1.0)


class Guess(NamedTuple):
    """What a run shows of its machine in part alone.

    `growth` and `step_slowed` are as of `simulate`; `in_turn` tells whether storage serves workers
    one after the other.
    """

    growth: float
    step_slowed: float
    in_turn: bool


class Model:
    """A recorded loader, and what training would do if it were changed.

    `costs` are what its batches take, see `costs.py`, and `settings` those that it had: of its
    workers, as many as have something to do.
    """

    def __init__(self, run: Run, gap: Gap, stages: Stages | None) -> None:
        """Raises UsageError where nothing can be predicted from the run."""
        use, missing = cpus_of(run), "has too few batches that count"
        costs: Columns | None = None
        if run.header.mode != "alternate":
            missing = "does not tell what a training step takes without loading"
        elif stages is None:
            missing = "does not tell what happens inside the loader"
        elif gap.real is not None and gap.ideal is not None and gap.whole is not None:
            costs = costs_of(run, stages, gap.ideal.value, 1.0 if use.step is None else use.step)
            self._real, self._ideal_ns, self._whole_ns = gap.real, gap.ideal.value, gap.whole.value
        if costs is None or stages is None:
            raise UsageError(
                f"{run.path or run.header.name} {missing}, so nothing can be predicted from it; "
                "expected a run of loadeval diagnose -- COMMAND, of a loader that loadeval looks "
                "into"
            )
        self.run, self.gap, self.stages = run, gap, stages
        self.costs, self._use = costs, use
        workers, depth = run.loader.workers or 0, run.loader.prefetch_depth or 0
        busy = set(run.stages.worker[run.stages.samples > 0].tolist()) - {UNKNOWN}
        cpus = None if use.usable is None else float(use.usable)
        is_kept = cpus is not None and use.theirs is not None and use.theirs < cpus
        # Of `cpus`, which training shares with its workers, these may use `worker_cpus`.
        self.settings: dict[str, Any] = {
            "num_workers": min(len(busy) or workers, workers),
            "prefetch_factor": max(depth // workers, 1) if workers else USUAL_PREFETCH,
            "in_order": run.loader.in_order is not False,
            "pins": bool((run.stages.pin_ns > 0).any()),
            "cpus": cpus,
            "worker_cpus": float(use.theirs or 0) if is_kept else None,
            "others_cpus": use.competing,
        }
        self._simulated: dict[object, Simulated] = {}

    @classmethod
    def of(cls, run: Run) -> Model:
        """The model of a run."""
        return cls(run, gap_of(run), stages_of(run))

    # What is asked of it

    def simulate(self, change: Change = AS_IT_IS, *, in_range: bool = True) -> Estimate:
        """The speed-up of training over whole epochs; `in_range` with what is to be expected.

        The range takes several times as long.
        """
        costs, settings = self._changed(change, self.costs)
        starts_ns, starts_now_ns = self._starts_ns(change), self._starts_ns()
        is_same = _key(costs, settings) == _key(self.costs, self.settings)
        if is_same and self.batches_in(change) == 1 and starts_ns == starts_now_ns:
            return NOTHING_GAINED
        guesses = self.guesses if in_range else self.guesses[:1]
        ends = [self._steady_ns(change, guess) for guess in guesses]
        usual_ns = math.sqrt(ends[0][0] * ends[0][1])
        speedup = self._whole_ns / (usual_ns + starts_ns)
        if not in_range:
            return Estimate(speedup)
        low, high = self._real.bounds
        work_ns, real_ns = work_of(self.costs), self._real.value
        noise = math.hypot(
            (high - low) / 2 / real_ns,
            work_ns.std() / math.sqrt(len(work_ns)) / max(work_ns.mean(), 1.0),
        )
        # What is lost is known no better, which matters as far as a change takes it away.
        part = min(abs(real_ns - usual_ns) / max(real_ns - self._ideal_ns, 1.0), 1.0)
        noise = max(part * noise, min(noise, USUAL_ERROR))
        further = ERROR_OF_CHANGE * abs(math.log(real_ns / usual_ns))
        crowded = CROWDED_ERROR * _crowding(costs, settings, usual_ns)
        error = math.hypot(USUAL_ERROR + further, noise, crowded)
        slower = (max(most / usual_ns - 1, 0.0) for _, most in ends)
        faster = (max(usual_ns / least - 1, 0.0) for least, _ in ends)
        slowest_ns = usual_ns * (1 + math.hypot(error, *slower))
        fastest_ns = usual_ns / (1 + math.hypot(error, *faster))
        unsure_ns = abs(starts_ns - starts_now_ns) / 2
        most_ns = max(starts_ns + unsure_ns, self._starts_ns(change, first_counts=True))
        least_ns = max(starts_ns - unsure_ns, min(starts_now_ns, 0.0))
        return Estimate(
            speedup,
            self._whole_ns / (slowest_ns + most_ns),
            self._whole_ns / max(fastest_ns + least_ns, 1.0),
        )

    def throughput(self, change: Change = AS_IT_IS) -> Estimate:
        """Samples per second over whole epochs, or batches where samples are not known."""
        measured = throughput(self.gap)["real"] * (self._real.value / self._whole_ns)
        speedup = self.simulate(change)
        if speedup == NOTHING_GAINED:
            return measured
        return speedup * (measured.value if measured.low is None else measured)

    @property
    def unit(self) -> str:
        """What throughput counts: samples, by their name, or batches."""
        return "batches" if self.gap.samples_per_batch is None else self.run.header.unit

    def best_workers(self) -> int:
        """The fewest workers that come near the best; the present number unless others are better.

        As many as there are CPUs at most, or more where workers are blocked.
        """
        now, cpus = self.settings["num_workers"], self.settings["cpus"]
        if now < (self.run.loader.workers or 0):  # some have nothing to do already
            return int(now)
        most = math.floor((cpus or now) / max(1 - self.blocked, 0.1))
        counts = [now, *sorted({0, *spread(1, max(most, now + 1))} - {now})]
        speedups = [self.simulate(self.with_workers(each), in_range=False) for each in counts]
        return int(counts[cheapest(speedups)])

    def with_workers(self, count: int) -> Change:
        """So many workers; first ones live on between epochs."""
        live_on = {"persistent_workers": True} if count and not self.settings["num_workers"] else {}
        return Change({"num_workers": count, **live_on})

    def worker_counts(self) -> list[int]:
        """Without workers and with some: until enough, and twice the CPUs, or those now."""
        now, cpus, best = self.settings["num_workers"], self.settings["cpus"], self.best_workers()
        most = max(2 * max(now, math.ceil(cpus or 1), 2), best)
        return sorted({0, now, *spread(1, most), best})

    def limit(self, change: Change = AS_IT_IS) -> str:  # noqa: PLR0911 - one for each limit
        """What training is held up by then: the words of "then the CPUs are the limit"."""
        guess = self.guesses[0]
        costs, settings = self._changed(change, self._present(guess)[0])

        def iteration_ns(costs: Columns = costs, **changed: Any) -> float:
            return self._simulation(costs, {**settings, **changed}, guess).iteration_ns

        then_ns, free_ns = iteration_ns(), iteration_ns(in_share(costs, 0.0))
        if then_ns <= (1 + LEAST_HELP) * free_ns:
            if free_ns > 1.1 * costs.step_ns.mean():
                return "the training process"
            starts_ns = self._starts_ns(change)
            starts_late = starts_ns >= MATTERS * (starts_ns + self._steady_ns(change, guess)[1])
            return "the starts of epochs" if starts_late else "the training step"
        workers, helps_ns = settings["num_workers"], (1 - LEAST_HELP) * then_ns
        if not workers:
            return "loading in the training process"
        cpus_ns = iteration_ns(cpus=None, worker_cpus=None)
        workers_ns = iteration_ns(num_workers=2 * workers)
        names = {"disk": "the storage", "lock": "a lock", "server": "one process that serves all"}
        shared = names.get(self.blockage)
        if cpus_ns < helps_ns and (shared or cpus_ns <= workers_ns):
            return "the CPUs"
        if iteration_ns(prefetch_factor=4 * settings["prefetch_factor"]) < helps_ns:
            return "prefetching"
        if workers_ns < helps_ns:
            return shared or "the workers"
        return (shared or "the storage") if guess.in_turn else "the training process"

    # What is known of the run

    @cached_property
    def blocked(self) -> float:
        """The share of fetching and collating in which a worker is blocked, slow samples apart."""
        typical = self.costs["part slow samples"] == 0
        if typical.mean() < MOSTLY:
            typical = np.ones(len(self.costs), dtype=np.bool_)
        work_ns = work_of(self.costs)[typical].sum()
        return self.costs.blocked_ns[typical].sum() / work_ns if work_ns else 0.0

    @cached_property
    def blockage(self) -> str:
        """What blocks workers: see inside.stages; "" where they are not for long."""
        workers = self.settings["num_workers"]
        if self.blocked < BLOCKAGE_MATTERS or not workers:
            return ""
        return blockage(self.stages, workers, self.blocked)

    @cached_property
    def in_turn(self) -> tuple[bool, ...]:
        """Whether storage serves workers one after the other; both where that is not known.

        A disk is likely to give several workers no more in total, and other storage to answer each
        of them as fast; a process at its limit gives no more.
        """
        if self.blockage == "server":
            return (True,)
        line = self.stages.blocked_line
        blocked_in = "" if line is None else line.blocked_in
        is_read = self.blockage != "lock" and not blocked_in.endswith(SLEEPS)
        if self.blocked < BLOCKAGE_MATTERS or not is_read:
            return (False,)
        return (True, False) if self.blockage == "disk" else (False, True)

    def settings_with(self, change: Change) -> dict[str, Any]:
        """All settings then; no others use CPUs that are given."""
        alone = {"others_cpus": 0.0, "worker_cpus": None} if "cpus" in change.settings else {}
        return {**self.settings, **alone, **change.settings}

    def batches_in(self, change: Change) -> float:
        """How many batches of the run one batch is worth then."""
        wanted = change.settings.get("batch_size")
        if wanted is None:
            return 1.0
        size = self.run.loader.batch_size or self.gap.samples_per_batch
        if not size:
            raise UsageError("the run does not tell its batch size; leave batch_size out")
        return float(wanted / size)

    @property
    def unlike(self) -> float:
        """What a simulation of the present settings takes, over what was measured."""
        _, now = self._present(self.guesses[0])
        return now.iteration_ns / self._real.value

    # Simulations

    def _steady_ns(self, change: Change, guess: Guess) -> tuple[float, float]:
        """What an iteration takes in the steady state, for a batch of the run: at least, at most.

        Both are the same where the simulation of the run as it is takes about what was measured.
        Else it leaves something out, which may be in proportion to the iteration, stay as it is,
        or go with what loading computes.
        """
        present, now = self._present(guess)
        costs, settings = self._changed(change, present)
        then = self._simulation(costs, settings, guess)
        longer = _crowded(costs, settings, then.iteration_ns)
        longer /= _crowded(present, self.settings, now.iteration_ns)
        batches, measured_ns = self.batches_in(change), self._real.value
        then_ns = longer * then.iteration_ns / batches
        ends = [then_ns * measured_ns / now.iteration_ns]
        if abs(now.iteration_ns / measured_ns - 1) > UNLIKE:
            left_out_ns = measured_ns - now.iteration_ns
            load = computed_ns(costs) / batches / max(computed_ns(present), 1.0)
            ends += [max(then_ns + part * left_out_ns, ends[0] / 2) for part in (1.0, load)]
        return min(ends), max(ends)

    def _changed(self, change: Change, present: Columns) -> tuple[Columns, dict[str, Any]]:
        """What batches take then, and with which settings they are simulated."""
        now, every = self.settings["num_workers"], self.settings_with(change)
        settings = {name: every[name] for name in self.settings}
        costs, workers = change.applied(present), settings["num_workers"]
        if workers and not now:
            tensors, nbytes = self.run.stages.tensors, self.run.steps.nbytes
            costs = handed_over(costs, mean_known(tensors), mean_known(nbytes) or 0.0)
        if self.batches_in(change) != 1:
            costs = resized(costs, self.batches_in(change))
        if self.blockage == "lock" and workers:  # all together pass it no faster than they do now
            taken_ns = work_of(costs) * workers / now
            blocked_ns = np.maximum(taken_ns - costs.cpu_ns - costs.run_queue_ns, 0.0)
            costs = costs.replace(blocked_ns=blocked_ns)
        return costs, settings

    @once_per_run
    def _present(self, guess: Guess) -> tuple[Columns, Simulated]:
        """What batches take with one CPU in use, and the simulation of the present settings.

        What fetching takes is scaled until that takes as long as was measured. What workers waited
        for a CPU is left out where the simulation makes them wait.
        """
        measured_ns, costs = self._real.value, self.costs
        is_read = self._use.others["real"] is not None or self.settings["worker_cpus"] is not None
        if is_read and not self._use.workers_differ:  # one that is bound waits for no other reason
            costs = costs.replace(run_queue_ns=np.zeros(len(costs)))
        costs = read_in_turn(costs, measured_ns) if guess.in_turn else costs
        as_it_was = partial(self._simulation, settings=self.settings, guess=guess)
        costs = costs.replace(cpu_ns=costs.cpu_ns / as_it_was(costs).grown)
        scale, now = 1.0, as_it_was(costs)
        for _ in range(CALIBRATIONS):
            if abs(now.iteration_ns / measured_ns - 1) < NO_EFFECT:
                break
            steeper = as_it_was(scaled(costs, 1.1 * scale))
            more_ns = steeper.iteration_ns - now.iteration_ns
            if more_ns < NO_EFFECT * now.iteration_ns:  # something else limits it
                break
            scale += 0.1 * scale * (measured_ns - now.iteration_ns) / more_ns
            scale = min(max(scale, SCALES[0]), SCALES[1])
            now = as_it_was(scaled(costs, scale))
        return scaled(costs, scale), now

    @cached_property
    def guesses(self) -> tuple[Guess, ...]:
        """What may be true of the machine: the likeliest, and each part of it at both its ends.

        It is what is usual, and what the run shows, each weighed by how exact it is: beside workers
        steps became longer by as much as was measured, for want of CPUs where there are too few for
        the threads of a step, and else because each slows the others.
        """
        contention, in_turn = self.gap.contention, self.in_turn
        computes = self.costs.step_cpu_ns.mean() / max(self._ideal_ns, 1.0)
        threads = max(round(computes), 1)
        workers, cpus = self.settings["num_workers"], self.settings["cpus"] or math.inf
        usual = Guess(GROWTH, SLOWED if threads > 1 else 1.0, in_turn[0])
        known = {
            "growth": [(GROWTH, GROWTH_ERROR)],
            "step_slowed": [(math.log(SLOWED), SLOWED_ERROR)],
        }
        if workers and contention is not None and contention.low is not None:
            name = "step_slowed" if threads > 1 and threads + workers > cpus else "growth"
            tried = [Guess(**{**usual._asdict(), name: value}) for value in TRIED[name]]
            steps_ns = np.array([self._present(guess)[1].step_ns for guess in tried])
            longer, order = contention + self._ideal_ns, np.argsort(steps_ns)
            if np.ptp(steps_ns) >= NO_EFFECT * longer.value:
                # The values with which steps take what was measured, and a standard error less, and
                # more.
                error_ns = (longer.bounds[1] - longer.bounds[0]) / 2 / SIGMAS
                around_ns = longer.value + error_ns * np.array([-1, 0, 1])
                shown = np.interp(around_ns, steps_ns[order], np.array(TRIED[name])[order])
                low, value, high = (np.log(shown) if name == "step_slowed" else shown).tolist()
                least = LEAST_ERROR[name] / max(min(computes, 1.0), LEAST_CPU)
                known[name].append((value, math.hypot((high - low) / 2, least)))
        (growth, error), (slow, slow_error) = map(_weighed, known.values())
        likely = Guess(max(growth, 0.0), math.exp(slow) if threads > 1 else 1.0, in_turn[0])
        ends = [likely._replace(growth=max(growth + each, 0.0)) for each in (-error, error)]
        if threads > 1:
            slows = (max(math.exp(slow + each), 1.0) for each in (-slow_error, slow_error))
            ends += [likely._replace(step_slowed=each) for each in slows]
        return likely, *ends, *(likely._replace(in_turn=each) for each in in_turn[1:])

    def _simulation(self, costs: Columns, settings: Mapping[str, Any], guess: Guess) -> Simulated:
        settings = {**settings, "growth": guess.growth, "step_slowed": guess.step_slowed}
        key = _key(costs, settings)
        if key not in self._simulated:
            self._simulated[key] = simulate(costs, **settings)
        return self._simulated[key]

    def _starts_ns(self, change: Change = AS_IT_IS, *, first_counts: bool = False) -> float:
        """What the starts and ends of epochs add to a batch of the run.

        Workers that come to live on start once, in an epoch that does not count unless
        `first_counts`: then it does, in a training of as many epochs as the run had. First workers
        begin with nothing loaded ahead: where the step is the limit, loading the first batch comes
        on top, and else the last step does.
        """
        now, workers = self.settings["num_workers"], change.settings.get("num_workers")
        workers = now if workers is None else workers
        lives_on = bool(self.run.loader.persistent_workers)
        will_live_on = change.settings.get("persistent_workers", lives_on)
        epochs, cpus = epoch_lengths(self.run), self.settings_with(change)["cpus"] or math.inf
        length = length_of_epochs(self.run) or max(epochs.values(), default=1)
        own_ns, together_ns = start_ns(self.run, self.settings["cpus"] or math.inf)

        def started_ns(count: int, cpus: float) -> float:
            return count * own_ns + (max(count / cpus, 1) * together_ns if count else 0.0)

        then_ns, now_ns = started_ns(workers, cpus), started_ns(now, self.settings["cpus"] or cpus)
        if will_live_on:
            counts = lives_on or first_counts
            then_ns = then_ns / max(len(epochs), 1) * counts + workers * RESUME_NS
        if lives_on:
            now_ns = now_ns / max(len(epochs), 1) + now * RESUME_NS
        more_ns = then_ns - now_ns
        if workers and not now:
            fetch_ns = work_of(self.costs).mean()
            more_ns += fetch_ns if fetch_ns <= workers * self._ideal_ns else self._ideal_ns
        starts_ns = 0.0 if self.gap.starts is None else self.gap.starts.value
        starts_ns *= change.settings.get("starts", 1.0)
        return float(max(starts_ns + more_ns / length, min(starts_ns, 0.0)))


def _weighed(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The mean of values with standard errors, by their inverse squares; and 95% around it."""
    weights = [1 / error**2 for _, error in known]
    mean = np.average([value for value, _ in known], weights=weights)
    return float(mean), SIGMAS / math.sqrt(sum(weights))


def cheapest(gains: Sequence[Estimate], share: float = ENOUGH) -> int:
    """Which is the first that has this share of the best, where the cheapest come first."""
    values = [each.value for each in gains]
    return next(at for at, value in enumerate(values) if value >= share * max(values))


def spread(first: int, last: int) -> list[int]:
    """Numbers from `first` to `last`, the larger ones some 20% apart."""
    counts = [first]
    while counts[-1] < last:
        counts.append(min(counts[-1] + max(counts[-1] // 5, 1), last))
    return counts


def _key(costs: Columns, settings: Mapping[str, Any]) -> tuple[object, ...]:
    """The same for what is simulated the same."""
    times = b"".join(costs[name].tobytes() for name in costs.names if name.endswith("_ns"))
    return hash(times), tuple(sorted(settings.items()))


def _crowded(costs: Columns, settings: Mapping[str, Any], iteration_ns: float) -> float:
    """How many times as long an iteration takes for want of CPUs, see CROWDED."""
    longer = min(CROWDED * (settings["cpus"] or 0.0), MOST_CROWDED)
    return 1 + longer * _crowding(costs, settings, iteration_ns)


def _crowding(costs: Columns, settings: Mapping[str, Any], iteration_ns: float) -> float:
    """The share of the CPUs in use where workers and training are more than these; else 0.

    Training counts where it computes for most of an iteration, and others for whole CPUs.
    """
    cpus = settings["cpus"]
    if cpus is None or not iteration_ns:
        return 0.0
    training_ns = (costs.step_cpu_ns + costs.receive_ns + costs.index_ns).mean()
    training = round(min(training_ns / iteration_ns, 1.0))
    if settings["num_workers"] + training <= cpus - round(settings["others_cpus"]):
        return 0.0
    return float(min((costs.cpu_ns.mean() + training_ns) / iteration_ns / cpus, 1.0))

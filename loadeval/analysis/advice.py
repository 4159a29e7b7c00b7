"""What to do, in sentences."""

from __future__ import annotations

SUPPORTED = (
    "Cheaper decoding and transforms, or a faster loader, would help; more workers only as far as "
    "CPUs are free for them. The findings say what this run supports."
)
WAITING = (
    "Training waits for batches, and why was not measured: it may be decoding and transforms, too "
    "shallow a queue, or more workers than there are free CPUs, or fewer. The findings say what "
    "this run supports."
)
INTERFERING = (
    "Steps are slower while the loader works, which takes CPU, memory bandwidth or the device "
    "from them: try fewer workers or threads, or a loader that needs less."
)
BATCH_DEPENDENT = (
    "Where a step's time depends on what is in its batch, measure with mode='alternate', which "
    "serves every batch once."
)
ENOUGH_CAPACITY = (
    "On its own the loader is fast enough (a batch takes it {required:.2f} of an ideal iteration): "
    "capacity is not the problem."
)
UNEVEN = (
    "Some batches take far longer than others, the queue is too shallow for them, or each batch "
    "has a cost in the training process: the findings say what this run supports."
)
IN_TURN = (
    "It loads nothing while a step runs, so that their times add up: load in the background, as "
    "far as CPUs are free for it."
)
TOO_SLOW = (
    "The loader is too slow even on its own: it must become {required:.2f} times as fast before "
    f"it stops being the limit. {SUPPORTED}"
)
KEEPS_UP = "Look at the training step instead: loading keeps up with it."
SLOWER_WHEN_FREE = (
    "Free loading cannot slow training down: look for other work on the machine, and for steps "
    "whose time depends on their batch, then measure again."
)
TOO_FEW = "Run more batches or epochs, or pass a smaller warmup=."
NO_STEADY = "Run more batches in each epoch, or pass a smaller warmup=."
MORE_BATCHES = "More batches in both runs would settle it, or one run with mode='alternate'."
MORE_PAIRS = (
    "More pairs would settle it: run more batches or epochs, and raise pairs= or batches= where "
    "they ended the run. A pair takes some 25 batches, more with a deep queue; ten pairs are a "
    "good beginning."
)
CONTAMINATED = (
    "A loader whose workers rest once its queue is full would settle it: give it a smaller "
    "prefetch, stop other worker processes of this program, or compare a run with mode='log' to "
    "one with mode='replay', which stops the workers."
)
PACE_DRIFTED = (
    "One run with mode='alternate' would settle it, which compares neighbouring moments; or "
    "longer runs on a machine that does nothing else."
)
STARTING_UP = (
    "Over whole epochs of {batches:.0f} batches free loading would be worth {epoch:.2f}x: their "
    "epoch start costs more than the steady part. Make epochs longer, or what they begin with "
    "shorter: starting workers, opening files, filling a shuffle buffer."
)


def where_to_look(required: float | None, waits: bool, ahead: bool) -> str:
    """Advice by whether most is lost in waiting, and by whether the loader alone is fast enough.

    `required` is None where the loader alone was not timed; `ahead` is False where the loader
    is known to load nothing ahead of time.
    """
    if waits and not ahead:
        return IN_TURN
    if required is None:
        return WAITING if waits else f"{INTERFERING} {BATCH_DEPENDENT}"
    if required > 1:
        too_slow = TOO_SLOW.format(required=required)
        return too_slow if waits else f"{too_slow} {INTERFERING}"
    enough = ENOUGH_CAPACITY.format(required=required)
    if not waits:
        return f"{enough} {INTERFERING}"
    return f"{enough} {UNEVEN}"

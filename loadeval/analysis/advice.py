"""What to do, in sentences."""

from __future__ import annotations

WAITING = (
    "Training waits for batches: try more workers, a deeper prefetch, cheaper decoding and "
    "transforms, or a faster loader."
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
    "On its own the loader is fast enough (a batch takes it {required:.2f} of an ideal cycle): "
    "capacity is not the problem."
)
UNEVEN = (
    "Batches come in bursts, none is loaded ahead, the queue is too shallow for them, or handing "
    "them over takes that long: the findings tell which."
)
IN_TURN = (
    "It loads nothing while a step runs, so that their times add up: try workers that load in "
    "the background."
)
TOO_SLOW = (
    "The loader is too slow even on its own: it must become {required:.2f} times as fast before "
    "it stops being the limit. Try more workers, cheaper decoding and transforms, or a faster "
    "loader."
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
    "start-up costs more than the steady part. Try workers that stay alive between epochs, or "
    "longer epochs."
)


def where_to_look(required: float | None, waits: bool, ahead: bool) -> str:
    """Advice by whether most is lost in waiting, and by whether the loader alone is fast enough.

    `required` is None where the loader alone was not timed; `ahead` is False where the loader
    is known to load nothing ahead of time.
    """
    if required is None:
        return WAITING if waits else f"{INTERFERING} {BATCH_DEPENDENT}"
    if required > 1:
        too_slow = TOO_SLOW.format(required=required)
        return too_slow if waits else f"{too_slow} {INTERFERING}"
    enough = ENOUGH_CAPACITY.format(required=required)
    if not waits:
        return f"{enough} {INTERFERING}"
    return f"{enough} {UNEVEN if ahead else IN_TURN}"

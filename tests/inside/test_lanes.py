"""Which stretch of a run is looked at batch by batch, and what is on it."""

from __future__ import annotations

from loadeval.data.run import Run
from loadeval.inside.stages import Lanes, lanes, loaded, spans
from tests.builder import MS, looked_into, stage_rows


def stretch_of(run: Run) -> Lanes:
    stretch = lanes(run)
    assert stretch is not None
    return stretch


def test_the_last_of_the_longest_epochs_is_shown_whole() -> None:
    epochs = [
        stage_rows(10, count, epoch=epoch, step_ms=3, begin_ms=1000 * epoch)
        for epoch, count in enumerate((30, 30, 20))
    ]
    stretch = stretch_of(looked_into(*epochs))
    assert stretch.says == "Epoch 1, batches 0 to 29, 30 of them drawn"
    assert stretch.batches.batch.tolist() == list(range(30))


def test_a_batch_goes_through_its_stages_one_after_the_other() -> None:
    took = {"index_ms": 1, "collate_ms": 2, "pickle_ms": 3, "receive_ms": 4, "pin_ms": 5}
    rows = stage_rows(10, 1, workers=1, **took)
    assert {
        stage: (int(begin_ns[0]) // MS, int(took_ns[0]) // MS)
        for stage, (begin_ns, took_ns) in spans(rows).items()
    } == {
        "fetch": (0, 10),
        "collate": (10, 2),
        "pickle": (12, 3),
        "receive": (15, 4),
        "pin": (19, 5),
        "indices": (24, 1),
    }
    batches = loaded(looked_into(rows))
    moments = (batches.fetched_ns, batches.collated_ns, batches.ready_ns, batches.arrived_ns)
    assert [int(column[0]) // MS for column in moments] == [10, 12, 15, 19]


def test_without_workers_training_draws_indices_and_fetches_and_nothing_is_pickled() -> None:
    rows = stage_rows(10, 1, workers=0, index_ms=1)
    known = {
        stage: (int(begin_ns[0]) // MS, int(took_ns[0]) // MS)
        for stage, (begin_ns, took_ns) in spans(rows).items()
        if took_ns[0] >= 0
    }
    assert known == {"indices": (0, 1), "fetch": (1, 10), "collate": (11, 0)}


def test_where_a_moment_is_not_known_nothing_is_drawn() -> None:
    rows = stage_rows(10, 1).replace(fetch_start_ns=[-1], received_ns=[-1])
    drawn = {stage for stage, (_, took_ns) in spans(rows).items() if took_ns[0] >= 0}
    assert drawn == {"indices", "pickle"}

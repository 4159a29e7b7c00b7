"""Arguments that cannot be used: one error each, saying what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from loadeval import LoaderEvaluator, UsageError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "reply"}, "mode is 'reply'; expected 'log' or 'replay'"),
        ({"num_cached_batches": 0}, "num_cached_batches is 0; expected a whole number, 1 or"),
        ({"warmup": -1}, "warmup is -1; expected a whole number, 0 or more"),
        ({"samples": 3}, "samples is 3; expected a function"),
        ({"unit": ""}, "unit is ''; expected a word"),
        ({"stages": 1}, "stages is 1; expected True, False or None"),
        (
            {"pairs": 1},
            "pairs is 1; expected only in mode 'alternate', and the mode is 'log'; omit",
        ),
        (
            {"mode": "alternate", "epoch_batches": 1},
            "epoch_batches is 1; expected only in mode 'replay'",
        ),
        ({"replay_after": 3}, "replay_after is 3; expected only in mode 'replay'"),
        ({"loader": 7}, "'int'"),
        ({"loader": None}, "expected one loader"),
        ({"annotate": "nsys"}, "annotate is .nsys.; expected .nvtx. or .torch. or None"),
        ({"dataloader": [1]}, "expected one loader"),
        ({"probe_interval_s": 0}, r"probe_interval_s is 0.*; pass probes=\(\) to record no"),
        ({"probe_interval_s": None}, "probe_interval_s is None; expected seconds"),
        ({"probes": None}, r"probes is None; expected a list .*; pass probes=\(\) to record no"),
        ({"probes": "gpu"}, "probes is 'gpu'; expected a list of 'gpu'"),
        (
            {"mode": "replay", "stages": True},
            "stages is True; expected only in mode 'log' or 'alternate', and the mode is 'replay'",
        ),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        LoaderEvaluator(**{"loader": [1], **options})
    assert isinstance(caught.value, ValueError)

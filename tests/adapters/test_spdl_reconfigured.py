"""SPDL's loaders, made again with other settings."""

from __future__ import annotations

from typing import Any

import pytest
from spdl.dataloader import DataLoader

from loadeval import UsageError
from loadeval.adapter import adapter_for
from tests.spdl_pipelines import NEVER_RUN, pipeline

pytestmark = NEVER_RUN


def doubled(number: int) -> int:
    return 2 * number


def tunable(loader: Any) -> dict[str, Any]:
    return dict(adapter_for(loader).tunable(loader))


def reconfigured(loader: Any, **settings: Any) -> Any:
    return adapter_for(loader).reconfigured(loader, settings)


def served(loader: Any) -> list[Any]:
    return list(adapter_for(loader).epoch(loader))


def test_a_data_loader_has_other_threads_and_buffer() -> None:
    options: Any = {"preprocessor": doubled, "batch_size": 3, "output_order": "input"}
    loader = DataLoader(range(20), drop_last=True, timeout=60, **options)
    assert tunable(loader) == {"num_threads": 8, "buffer_size": 3}
    again = reconfigured(loader, num_threads=2, buffer_size=5)
    assert tunable(again) == {"num_threads": 2, "buffer_size": 5}
    assert served(again) == served(loader)
    assert len(served(again)) == 6


def test_a_pipeline_cannot_be_made_again() -> None:
    loader = pipeline()
    assert tunable(loader) == {}
    with pytest.raises(UsageError, match="only where it is made"):
        reconfigured(loader, num_threads=2)

"""Each planted hang is named, with who owes the batch and where; a slow loader is never called so.

`python tests/hangs/run.py` does it twenty times over.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hangs.planted import HANGS, HEALTHY, Ended, Planted, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHOSEN = (*HANGS, HEALTHY[0])
AT_ONCE = 4
"""They wait most of the time."""


@pytest.fixture(scope="module")
def ends() -> dict[Planted, Ended]:
    """How each ended."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(CHOSEN, threads.map(run, CHOSEN), strict=True))


@pytest.mark.parametrize("planted", CHOSEN, ids=lambda planted: planted.name)
def test_a_planted_hang_is_named(planted: Planted, ends: dict[Planted, Ended]) -> None:
    end = ends[planted]
    assert end.is_as(planted), f"{end.code}: {end.err}"

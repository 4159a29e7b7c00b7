"""What is said of recorded looks at planted hangs."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pytest

from loadeval.analysis.hangs.hang import hang_of, hang_of_job
from loadeval.probes.looks import Look
from tests.attached import MARKS
from tests.recorded import HANGS, hang_rows

FOUND = hang_rows()
SILENT_NS = 10_000_000_000


def said_of(training: dict[str, Any]) -> Any:
    return hang_of(msgspec.convert(training["looks"], list[Look], strict=False), MARKS, SILENT_NS)


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_hang_is_named(name: str) -> None:
    text = gzip.decompress((HANGS / f"{name}.json.gz").read_bytes())
    hang = hang_of_job([said_of(training) for training in json.loads(text)])
    told = hang.place.line or hang.collective or ""
    assert hang.is_hang
    assert f"{hang.cause.value}: {told}" == FOUND[name]

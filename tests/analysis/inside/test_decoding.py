"""Whether loading is mostly decoding images."""

from __future__ import annotations

import pytest

from loadeval.analysis.inside.decoding import is_mostly_decoding
from loadeval.analysis.inside.stages import stages_of
from loadeval.data.log import read_run
from tests.runs import DEMO
from tests.runs.tables import replace


def test_the_demo_decodes_jpegs() -> None:
    """Pillow's load, which its workers were in most."""
    assert is_mostly_decoding(stages_of(read_run(DEMO)))


@pytest.mark.parametrize(
    ("leaf", "share", "mostly"),
    [
        ("ImageFile.load", 0.5, True),
        ("imread", 0.5, True),
        ("decode_jpeg", 0.5, True),
        ("imread", 0.2, False),
        ("Image.resize", 0.9, False),
        ("", 0.9, False),
    ],
)
def test_only_decoders_count(leaf: str, share: float, mostly: bool) -> None:
    """Those of Pillow, OpenCV, torchvision and others, from a share on."""
    stages = stages_of(read_run(DEMO))
    assert stages is not None
    line = replace(stages.code[0], leaf=leaf, share=share)
    assert is_mostly_decoding(replace(stages, code=(line,))) is mostly


def test_nothing_is_said_of_a_loader_that_was_not_looked_into() -> None:
    assert not is_mostly_decoding(None)

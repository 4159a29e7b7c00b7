"""Whether loading is mostly decoding images, by the functions that workers were in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadeval.analysis.inside.stages import StageReport

DECODERS = re.compile(
    r"(.+\.)?ImageFile\.load|(.+\.)?(imread|imdecode|decode_(image|jpeg|png|webp)|new_from_(file|buffer))"
)
"""Pillow, OpenCV, torchvision and simplejpeg, and libvips."""
MUCH_DECODING = 0.3
"""From this share of fetching and collating on, another decoder would change much."""


def is_mostly_decoding(stages: StageReport | None) -> bool:
    """Whether decoding images takes MUCH_DECODING of fetching and collating, or more."""
    if stages is None:
        return False
    shares = [line.share for line in stages.code if DECODERS.fullmatch(line.leaf)]
    return sum(shares) >= MUCH_DECODING

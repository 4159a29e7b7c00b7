"""plotly.js as the installed plotly package has it, and what a strict policy asks of a page."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass

from loadeval.errors import UsageError

STYLE_SWITCH = "no-inline-styles"
"""The class by which a page tells plotly.js that it brings the styles itself."""
STYLE_ID = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
"""plotly.js adds the styles of its maps, which no figure here is, unless this id is there."""
ENDS_A_SCRIPT = re.compile(r"</script|<!--", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Plotly:
    """plotly.js: its text, its version, and the ids that keep it from adding styles of its own."""

    text: str
    version: str
    style_ids: tuple[str, ...]

    @classmethod
    def installed(cls) -> Plotly:
        """Raises UsageError where plotly is too old for a page with a strict policy."""
        from plotly.offline import (  # type: ignore[import-untyped]  # noqa: PLC0415 - ships no types; heavy
            get_plotlyjs,
            get_plotlyjs_version,
        )

        text, version = str(get_plotlyjs()).replace("\r\n", "\n"), str(get_plotlyjs_version())
        if STYLE_SWITCH not in text or ENDS_A_SCRIPT.search(text):
            raise UsageError(
                f"plotly.js {version} of the installed plotly cannot be put into a page that runs "
                "nothing else; expected 3.0 or later: pip install --upgrade plotly"
            )
        return cls(text, version, tuple(dict.fromkeys(STYLE_ID.findall(text))))


def policy(scripts: list[str], style: str) -> str:
    """The Content-Security-Policy of a page that runs `scripts` and loads nothing."""
    allowed = " ".join(map(source_hash, scripts))
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            "script-src-attr 'none'",
            f"style-src {source_hash(style)}",
            "style-src-attr 'none'",
            "img-src 'none'",
            "font-src 'none'",
            "connect-src 'none'",
            "worker-src 'none'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def source_hash(text: str) -> str:
    """`text`, which stands in a script or style element, as the policy names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

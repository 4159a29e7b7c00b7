"""Every rule asked of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.finding import Diagnosis

if TYPE_CHECKING:
    from loadeval.record.model import Run


def diagnose(real: Run, ideal: Run | None = None) -> Diagnosis:  # noqa: ARG001 - rules to come
    """What `real` says is wrong: an alternating run, or one that logged, with `ideal` replayed."""
    return Diagnosis((), ())

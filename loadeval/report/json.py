"""What is known of runs as values that JSON has, under the names that docs/json.md tells."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from loadeval.report.findings import diagnosis_as_dict
from loadeval.report.wording import (
    backend_cautions,
    backend_not_measured,
    backend_verdict,
    difference_sentence,
)

if TYPE_CHECKING:
    from loadeval.analysis.backends import BackendReport
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.readings import Metrics
    from loadeval.analysis.report import Report, RunReport

NOT_IN_JSON = ("run", "metrics")


def report_as_dict(report: Report) -> dict[str, Any]:
    """A comparison: headroom, both arms, metrics and diagnosis; or several backends."""
    if report.backends is not None:
        return backends_as_dict(report.backends)
    found = report.comparison
    if found is None:
        return {}
    return {
        **headroom_as_dict(found.headroom),
        **{side.name: asdict(side.summary) for side in found.sides},
        "readings": [metrics_as_dict(one.metrics) for one in report.runs],
        "diagnosis": diagnosis_as_dict(found.diagnosis),
    }


def headroom_as_dict(headroom: Headroom) -> dict[str, Any]:
    """All fields of Headroom."""
    return asdict(headroom)


def run_as_dict(one: RunReport) -> dict[str, Any]:
    """One run by itself; of an alternating one the figures of each arm."""
    run, header = one.run, one.run.header
    summaries = {side.name: asdict(side.summary) for side in one.sides}
    alternates = header.mode == "alternate"
    return {
        "path": str(run.path),
        "name": header.name,
        "mode": header.mode,
        "unit": header.unit,
        "created": header.created,
        "warmup": header.warmup,
        "loader": asdict(header.loader),
        "cache": None if header.cache is None else asdict(header.cache),
        "closed": run.closed,
        "notes": list(run.notes),
        "events": [asdict(event) for event in run.events],
        "readings": metrics_as_dict(one.metrics),
        "diagnosis": None if one.diagnosis is None else diagnosis_as_dict(one.diagnosis),
        **({"summaries": summaries} if alternates else {"summary": summaries[header.mode]}),
    }


def metrics_as_dict(metrics: Metrics) -> dict[str, Any]:
    """Every quantity of each arm, what is missing and why, and how memory grows."""
    return {
        "gpu_idle_ns": dict(metrics.gpu_idle_ns),
        "quantities": [
            {**asdict(found), "difference": found.difference} for found in metrics.quantities
        ],
        "missing": [{"probe": probe, "reason": why} for probe, why in metrics.missing],
        "growth": [asdict(found) for found in metrics.growths],
    }


def backends_as_dict(found: BackendReport) -> dict[str, Any]:
    """Everything but the runs; differences with their words."""
    return {
        "backends": [
            {
                **_plain(one),
                "verdict": backend_verdict(one),
                "readings": None if one.metrics is None else metrics_as_dict(one.metrics),
            }
            for one in found.backends
        ],
        "differences": [
            {**_plain(one), "shown": one.shown, "words": difference_sentence(one)}
            for one in found.differences
        ],
        "unit": found.unit,
        "cautions": backend_cautions(found),
        "not_measured": backend_not_measured(found),
    }


def _plain(found: Any) -> Any:
    if is_dataclass(found):
        return {
            field.name: _plain(getattr(found, field.name))
            for field in fields(found)
            if field.name not in NOT_IN_JSON
        }
    return [_plain(one) for one in found] if isinstance(found, tuple) else found

"""What was found as plain data, ready for JSON: codes for machines, sentences for people."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from loadeval.report.wording.advice import finding_advice
from loadeval.report.wording.backends import (
    backend_cautions,
    backend_not_measured,
    backend_reason,
    backend_verdict,
    difference_sentence,
    missing_of,
)
from loadeval.report.wording.findings import (
    QUESTIONS,
    finding_sentence,
    source_in_words,
    why_not_checked,
)
from loadeval.report.wording.operators import operators_in_short
from loadeval.report.wording.ranks import job_cautions, stragglers_in_words
from loadeval.report.wording.runs import growth_advice, growth_reason
from loadeval.report.wording.stages import stages_in_short
from loadeval.report.wording.verdict import cautions, not_measured, reason, verdict_advice
from loadeval.report.wording.whatif import assumption_in_words, limit_sentence, shortage_in_words
from loadeval.runlog.remote import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.headroom import Headroom
    from loadeval.analysis.memory import Growth
    from loadeval.analysis.metrics import Metrics
    from loadeval.analysis.operators import OperatorReport, ThreadReport
    from loadeval.analysis.ranks import JobReport
    from loadeval.analysis.remark import Remark
    from loadeval.analysis.report import Report, RunReport
    from loadeval.analysis.rules.finding import Check, Diagnosis, Finding
    from loadeval.analysis.stages import StageReport
    from loadeval.analysis.verdict import Verdict
    from loadeval.analysis.whatif import Prediction, WorkerCurve

NOT_FIGURES = (
    "run",
    "metrics",
    "stages",
    "operators",
    "threads",
    "headroom",
    "verdict",
    "reason",
    "advice",
    "cautions",
    "not_measured",
)


def report_as_dict(report: Report) -> dict[str, Any]:
    """A comparison: headroom, both arms, metrics and diagnosis; several backends; or a job."""
    if report.job is not None:
        return job_report_as_dict(report, report.job)
    if report.backends is not None:
        return backends_as_dict(report.backends)
    found = report.comparison
    if found is None:
        return {}
    return {
        **_headroom_as_dict(found.headroom),
        **{side.name: asdict(side.summary) for side in found.sides},
        "readings": [metrics_as_dict(one.metrics) for one in report.runs],
        "stages": [stages_as_dict(one.stages) for one in report.runs],
        "operators": [operators_as_dict(one.operators) for one in report.runs],
        "threads": [threads_as_dict(one.threads) for one in report.runs],
        "diagnosis": diagnosis_as_dict(found.diagnosis),
    }


def job_report_as_dict(report: Report, job: JobReport) -> dict[str, Any]:
    """The ranks of a job, and the job as a run, or as a comparison where it alternated."""
    if report.comparison is None:
        return shown_as_dict(report)
    return {**report_as_dict(replace(report, job=None)), "job": job_as_dict(job)}


def shown_as_dict(report: Report) -> dict[str, Any]:
    """One run by itself; or the ranks of a job, and the job as a run."""
    (one,) = report.runs
    job = {} if report.job is None else {"job": job_as_dict(report.job)}
    return {**run_as_dict(one), **job}


def job_as_dict(job: JobReport) -> dict[str, Any]:
    """What a job waits for, and each of its ranks."""
    found = job.stragglers
    return {
        "world_size": job.world_size,
        "nodes": job.nodes,
        "steps": job.steps,
        "iteration_ns": job.iteration_ns,
        "wait_ns": job.wait_ns,
        "wait_share": job.wait_share,
        "skew_ns": job.skew_ns,
        "shown_rank": job.shown,
        "stragglers": {
            **asdict(found),
            "kind": found.kind.value,
            "words": stragglers_in_words(job),
        },
        "ranks": [asdict(one) for one in job.ranks],
        "cautions": job_cautions(job),
        "caution_codes": _codes(job.cautions),
    }


def run_as_dict(one: RunReport) -> dict[str, Any]:
    """One run by itself; of an alternating one the figures of each arm."""
    run, header = one.run, one.run.header
    summaries = {side.name: asdict(side.summary) for side in one.sides}
    alternates = header.mode == "alternate"
    return {
        "path": str(run.path) if run.path is None else text_of(run.path),
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
        "stages": stages_as_dict(one.stages),
        "operators": operators_as_dict(one.operators),
        "threads": threads_as_dict(one.threads),
        "diagnosis": None if one.diagnosis is None else diagnosis_as_dict(one.diagnosis),
        **({"summaries": summaries} if alternates else {"summary": summaries[header.mode]}),
    }


def backends_as_dict(found: BackendReport) -> dict[str, Any]:
    """Several backends, but not their runs."""
    return {
        "backends": [_backend_as_dict(one) for one in found.backends],
        "differences": [
            {**asdict(one), "shown": one.shown, "words": difference_sentence(one)}
            for one in found.differences
        ],
        "unit": found.unit,
        "cautions": backend_cautions(found),
        "caution_codes": _codes(found.cautions),
        "not_measured": backend_not_measured(found),
    }


def metrics_as_dict(metrics: Metrics) -> dict[str, Any]:
    """Every quantity of each arm, what is missing and why, and how memory grows."""
    return {
        "gpu_idle_ns": dict(metrics.gpu_idle_ns),
        "quantities": [
            {**asdict(found), "difference": found.difference} for found in metrics.quantities
        ],
        "missing": [{"probe": probe, "reason": why} for probe, why in metrics.missing],
        "growth": [growth_as_dict(found) for found in metrics.growths],
    }


def stages_as_dict(found: StageReport | None) -> dict[str, Any] | None:
    """Where a loader's time goes; shares are of `total_ns`. None where it is not known."""
    if found is None:
        return None
    return {
        **asdict(found),
        "basis": found.basis.value,
        "stages": [
            {**asdict(one), "stage": one.stage.value, "share": found.share(one.charged_ns)}
            for one in found.stages
        ],
        "not_attributed_share": found.share(found.not_attributed_ns),
        "transforms": [
            {**asdict(one), "share": found.transform_share(one)} for one in found.transforms
        ],
        "code": [
            {
                **asdict(one),
                "share": found.code_share(one.share),
                "blocked_share": found.code_share(one.blocked_share),
            }
            for one in found.code
        ],
        "words": stages_in_short(found),
    }


def operators_as_dict(found: OperatorReport | None) -> dict[str, Any] | None:
    """What a loader's operators do, and which is the bottleneck. None where it is not known."""
    if found is None:
        return None
    return {
        **asdict(found),
        "operators": [
            {**asdict(one), "busy_share": one.busy_share, "batch_ns": one.batch_ns}
            for one in found.operators
        ],
        "bottleneck": None if found.bottleneck is None else found.bottleneck.name,
        "limit": None if found.limit is None else found.limit.value,
        "words": operators_in_short(found),
    }


def threads_as_dict(found: ThreadReport | None) -> dict[str, Any] | None:
    """How busy threads are, and the wait for Python's lock. None where nobody read them."""
    return None if found is None else asdict(found)


def whatif_as_dict(curve: WorkerCurve, found: Prediction | None) -> dict[str, Any]:
    """Throughput by workers, measured and predicted; and `found`, under other settings."""
    with_options = None if found is None else prediction_as_dict(found)
    return {**curve_as_dict(curve), "with_options": with_options}


def curve_as_dict(curve: WorkerCurve) -> dict[str, Any]:
    """Throughput by workers, measured and predicted."""
    return {
        "measured": [
            {"num_workers": workers, "throughput": asdict(rate)} for workers, rate in curve.measured
        ],
        "predicted": list(map(prediction_as_dict, curve.predicted)),
        "unit": curve.unit,
        "cpus": curve.cpus,
        "others_cpus": curve.others_cpus,
    }


def prediction_as_dict(found: Prediction) -> dict[str, Any]:
    """What is predicted under some settings."""
    return {
        **asdict(found),
        "limit": found.limit.value,
        "limit_words": limit_sentence(found),
        "assumptions": [
            {**_remark_as_dict(one), "words": assumption_in_words(one)} for one in found.assumptions
        ],
        "shortages": [
            {**_remark_as_dict(one), "words": shortage_in_words(one)} for one in found.shortages
        ],
    }


def growth_as_dict(found: Growth) -> dict[str, Any]:
    """How memory grows."""
    return {
        **_figures(found),
        "grows": found.grows,
        "reason": growth_reason(found),
        "reason_code": found.reason.code.value,
        "advice": growth_advice(found),
    }


def diagnosis_as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """The findings and checks with their codes, numbers and sentences."""
    return {
        "findings": [finding_as_dict(finding) for finding in diagnosis.findings],
        "checks": [_check_as_dict(check) for check in diagnosis.checks],
    }


def finding_as_dict(finding: Finding) -> dict[str, Any]:
    """A finding with its codes, numbers and sentences."""
    return {
        "rule": finding.rule.value,
        "severity": finding.severity,
        "confidence": finding.confidence,
        **_remark_as_dict(finding.problem),
        "caveat": None if finding.caveat is None else _remark_as_dict(finding.caveat),
        "sentence": finding_sentence(finding),
        "evidence": [asdict(fact) for fact in finding.evidence],
        "changes": [_remark_as_dict(change) for change in finding.changes],
        "advice": finding_advice(finding),
        "source": source_in_words(finding),
        "cost_share": finding.cost_share,
        "places": [asdict(place) for place in finding.places],
    }


def _check_as_dict(check: Check) -> dict[str, Any]:
    return {
        "rule": check.rule.value,
        "question": QUESTIONS[check.rule],
        "outcome": check.outcome,
        "code": None if check.reason is None else check.reason.code.value,
        "values": {} if check.reason is None else dict(check.reason.values),
        "reason": why_not_checked(check),
    }


def _remark_as_dict(remark: Remark) -> dict[str, Any]:
    return {"code": remark.code.value, "values": dict(remark.values)}


def _headroom_as_dict(found: Headroom) -> dict[str, Any]:
    return {
        **_figures(found),
        "verdict": str(found.verdict),
        "reason": reason(found),
        "advice": verdict_advice(found),
        "caution": " ".join(cautions(found)),
        "not_measured": not_measured(found),
        **_verdict_codes(found.verdict),
        "advice_codes": _codes(found.advice),
        "caution_codes": _codes(found.cautions),
        "not_measured_codes": _codes(found.not_measured),
    }


def _backend_as_dict(found: BackendResult) -> dict[str, Any]:
    gain = found.headroom
    return {
        **_figures(found),
        "state": found.state.value,
        "verdict": backend_verdict(found),
        "reason": backend_reason(found),
        "caution": "" if gain is None else " ".join(cautions(gain)),
        "not_measured": missing_of(found),
        **_verdict_codes(found.verdict),
        "caution_codes": _codes(found.cautions),
        "not_measured_codes": _codes(found.not_measured),
        "readings": None if found.metrics is None else metrics_as_dict(found.metrics),
        "stages": stages_as_dict(found.stages),
        "operators": operators_as_dict(found.operators),
        "threads": threads_as_dict(found.threads),
    }


def _verdict_codes(found: Verdict | None) -> dict[str, str | None]:
    codes = (found.lowest, found.highest, found.objection) if found else (None, None, None)
    values = (None if code is None else code.value for code in codes)
    return dict(zip(("lowest_level", "highest_level", "objection"), values, strict=True))


def _codes(remarks: Iterable[Remark]) -> list[str]:
    return [one.code.value for one in remarks]


def _figures(found: Any) -> dict[str, Any]:
    """The fields that hold numbers, estimates and names, as plain data."""
    values = {field.name: getattr(found, field.name) for field in fields(found)}
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in values.items()
        if name not in NOT_FIGURES
    }

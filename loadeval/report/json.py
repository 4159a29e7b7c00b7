"""What was found as plain data, ready for JSON: codes for machines, sentences for people."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from loadeval.report.wording import backends as backend_words
from loadeval.report.wording import findings as finding_words
from loadeval.report.wording.advice import finding_advice
from loadeval.report.wording.baseline import baseline_cautions, baseline_headline
from loadeval.report.wording.operators import operators_in_short
from loadeval.report.wording.plan import action_in_short, limit_in_words
from loadeval.report.wording.ranks import job_cautions, stragglers_in_words
from loadeval.report.wording.runs import growth_advice, growth_reason
from loadeval.report.wording.stages import stages_in_short
from loadeval.report.wording.verdict import cautions, not_measured, reason, verdict_advice
from loadeval.report.wording.whatif import assumption_in_words, limit_sentence, shortage_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loadeval.analysis.backends import BackendReport, BackendResult
    from loadeval.analysis.baseline import BaselineReport, ChangedFinding
    from loadeval.analysis.estimate.headroom import Headroom
    from loadeval.analysis.estimate.memory import Growth
    from loadeval.analysis.estimate.metrics import Metrics
    from loadeval.analysis.estimate.verdict import Verdict
    from loadeval.analysis.inside.operators import OperatorReport, ThreadReport
    from loadeval.analysis.inside.stages import StageReport
    from loadeval.analysis.job.ranks import JobReport
    from loadeval.analysis.predict.prediction import Prediction, WorkerCurve
    from loadeval.analysis.remark import Remark
    from loadeval.analysis.report import Comparison, Report, RunReport
    from loadeval.analysis.rules.actions import Action, Plan
    from loadeval.analysis.rules.finding import Check, Diagnosis, Finding

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
    """A comparison: headroom, both arms, metrics and diagnosis; or one run, or several backends.

    With the ranks of a job, and the baseline that was asked for.
    """
    if report.backends is not None:
        return backends_as_dict(report.backends)
    if report.comparison is None:
        found = run_as_dict(report.runs[0])
    else:
        found = _comparison_as_dict(report, report.comparison)
    if report.job is not None:
        found["job"] = job_as_dict(report.job)
    if report.baseline is not None:
        found["baseline"] = baseline_as_dict(report.baseline)
    return found


def _comparison_as_dict(report: Report, comparison: Comparison) -> dict[str, Any]:
    return {
        **_headroom_as_dict(comparison.headroom),
        **{side.name: asdict(side.summary) for side in comparison.sides},
        "readings": [metrics_as_dict(run.metrics) for run in report.runs],
        "stages": [stages_as_dict(run.stages) for run in report.runs],
        "operators": [operators_as_dict(run.operators) for run in report.runs],
        "threads": [threads_as_dict(run.threads) for run in report.runs],
        "diagnosis": diagnosis_as_dict(comparison.diagnosis),
        "plan": plan_as_dict(comparison.plan),
    }


def job_as_dict(job: JobReport) -> dict[str, Any]:
    """What a job waits for, and each of its ranks."""
    stragglers = job.stragglers
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
            **asdict(stragglers),
            "kind": stragglers.kind.value,
            "words": stragglers_in_words(job),
        },
        "ranks": [asdict(rank) for rank in job.ranks],
        "cautions": job_cautions(job),
        "caution_codes": _codes(job.cautions),
    }


def run_as_dict(report: RunReport) -> dict[str, Any]:
    """One run by itself, which logged."""
    run, header = report.run, report.run.header
    return {
        "path": str(run.path),
        "name": header.name,
        "mode": header.mode,
        "unit": header.unit,
        "created": header.created,
        "warmup": header.warmup,
        "loader": asdict(header.loader),
        "closed": run.closed,
        "notes": list(run.notes),
        "events": [msgspec.structs.asdict(event) for event in run.events],
        "readings": metrics_as_dict(report.metrics),
        "stages": stages_as_dict(report.stages),
        "operators": operators_as_dict(report.operators),
        "threads": threads_as_dict(report.threads),
        "diagnosis": None if report.diagnosis is None else diagnosis_as_dict(report.diagnosis),
        "plan": None if report.plan is None else plan_as_dict(report.plan),
        "summary": asdict(report.sides[0].summary),
    }


def backends_as_dict(report: BackendReport) -> dict[str, Any]:
    """Several backends, but not their runs."""
    return {
        "backends": [_backend_as_dict(backend) for backend in report.backends],
        "differences": [
            {
                **asdict(difference),
                "shown": difference.shown,
                "words": backend_words.difference_sentence(difference),
            }
            for difference in report.differences
        ],
        "unit": report.unit,
        "cautions": backend_words.backend_cautions(report),
        "caution_codes": _codes(report.cautions),
        "not_measured": backend_words.backend_not_measured(report),
    }


def baseline_as_dict(baseline: BaselineReport) -> dict[str, Any]:
    """A run against its baseline."""
    measured = ("epochs", "steady", "lost", "wait", "step")
    return {
        "pace": baseline.pace.value,
        "objection": None if baseline.objection is None else baseline.objection.value,
        "period": baseline.period.value,
        "unit": baseline.unit,
        **{name: asdict(getattr(baseline, name)) for name in measured},
        "batches": baseline.batches,
        "before_batches": baseline.before_batches,
        "drift_share": baseline.drift_share,
        "changes": [{**asdict(change), "where": change.where.value} for change in baseline.changes],
        "new_findings": list(map(_changed_finding, baseline.new_findings)),
        "gone_findings": list(map(_changed_finding, baseline.gone_findings)),
        "words": baseline_headline(baseline),
        "cautions": baseline_cautions(baseline),
        "caution_codes": _codes(baseline.cautions),
    }


def _changed_finding(changed: ChangedFinding) -> dict[str, Any]:
    return {"finding": finding_as_dict(changed.finding), "checked": changed.checked}


def metrics_as_dict(metrics: Metrics) -> dict[str, Any]:
    """Every quantity of each arm, what is missing and why, and how memory grows."""
    return {
        "gpu_idle_ns": dict(metrics.gpu_idle_ns),
        "quantities": [
            {**asdict(quantity), "difference": quantity.difference}
            for quantity in metrics.quantities
        ],
        "missing": [{"probe": probe, "reason": why} for probe, why in metrics.missing],
        "growth": [growth_as_dict(growth) for growth in metrics.growths],
    }


def stages_as_dict(stages: StageReport | None) -> dict[str, Any] | None:
    """Where a loader's time goes; shares are of `total_ns`. None where it is not known."""
    if stages is None:
        return None
    return {
        **asdict(stages),
        "basis": stages.basis.value,
        "stages": [
            {**asdict(stage), "stage": stage.stage.value, "share": stages.share(stage.charged_ns)}
            for stage in stages.stages
        ],
        "not_attributed_share": stages.share(stages.not_attributed_ns),
        "transforms": [
            {**asdict(line), "share": stages.transform_share(line)} for line in stages.transforms
        ],
        "code": [
            {
                **asdict(transform),
                "share": stages.code_share(transform.share),
                "blocked_share": stages.code_share(transform.blocked_share),
            }
            for transform in stages.code
        ],
        "calls": [
            {**asdict(call), "share": stages.code_share(call.share)} for call in stages.calls
        ],
        "words": stages_in_short(stages),
    }


def operators_as_dict(operators: OperatorReport | None) -> dict[str, Any] | None:
    """What a loader's operators do, and which is the bottleneck. None where it is not known."""
    if operators is None:
        return None
    return {
        **asdict(operators),
        "operators": [
            {**asdict(operator), "busy_share": operator.busy_share, "batch_ns": operator.batch_ns}
            for operator in operators.operators
        ],
        "bottleneck": None if operators.bottleneck is None else operators.bottleneck.name,
        "limit": None if operators.limit is None else operators.limit.value,
        "words": operators_in_short(operators),
    }


def threads_as_dict(threads: ThreadReport | None) -> dict[str, Any] | None:
    """How busy threads are, and the wait for Python's lock. None where nobody read them."""
    return None if threads is None else asdict(threads)


def whatif_as_dict(curve: WorkerCurve, prediction: Prediction | None) -> dict[str, Any]:
    """Throughput by workers, measured and predicted; and `prediction`, under other settings."""
    with_options = None if prediction is None else prediction_as_dict(prediction)
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


def prediction_as_dict(prediction: Prediction) -> dict[str, Any]:
    """What is predicted under some settings."""
    return {
        **asdict(prediction),
        "limit": prediction.limit.value,
        "limit_words": limit_sentence(prediction),
        "assumptions": [
            {**_remark_as_dict(assumption), "words": assumption_in_words(assumption)}
            for assumption in prediction.assumptions
        ],
        "shortages": [
            {**_remark_as_dict(shortage), "words": shortage_in_words(shortage)}
            for shortage in prediction.shortages
        ],
    }


def growth_as_dict(growth: Growth) -> dict[str, Any]:
    """How memory grows."""
    return {
        **_figures(growth),
        "grows": growth.grows,
        "reason": growth_reason(growth),
        "reason_code": growth.reason.code.value,
        "advice": growth_advice(growth),
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
        "sentence": finding_words.finding_sentence(finding),
        "evidence": [asdict(fact) for fact in finding.evidence],
        "changes": [_remark_as_dict(change) for change in finding.changes],
        "advice": finding_advice(finding),
        "source": finding_words.source_in_words(finding),
        "cost_share": finding.cost_share,
        "places": [asdict(place) for place in finding.places],
    }


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """What to do, in order, with codes, numbers and words."""
    return {
        "actions": [_action_as_dict(action) for action in plan.actions],
        "limit": None if plan.limit is None else plan.limit.value,
        "limit_words": limit_in_words(plan),
        "most": plan.most,
    }


def _action_as_dict(action: Action) -> dict[str, Any]:
    return {
        "target": action.target.value,
        **_remark_as_dict(action.change),
        "words": action_in_short(action),
        "place": action.place,
        "speedup": None if action.speedup is None else asdict(action.speedup),
        "at_least": action.at_least,
        "at_most": action.at_most,
        "rules": [rule.value for rule in action.rules],
        "possible": action.possible,
    }


def _check_as_dict(check: Check) -> dict[str, Any]:
    return {
        "rule": check.rule.value,
        "question": finding_words.WORDS[check.rule].question,
        "outcome": check.outcome,
        "code": None if check.reason is None else check.reason.code.value,
        "values": {} if check.reason is None else dict(check.reason.values),
        "reason": finding_words.why_not_checked(check),
    }


def _remark_as_dict(remark: Remark) -> dict[str, Any]:
    return {"code": remark.code.value, "values": dict(remark.values)}


def _headroom_as_dict(headroom: Headroom) -> dict[str, Any]:
    return {
        **_figures(headroom),
        "verdict": str(headroom.verdict),
        "reason": reason(headroom),
        "advice": verdict_advice(headroom),
        "caution": " ".join(cautions(headroom)),
        "not_measured": not_measured(headroom),
        **_verdict_codes(headroom.verdict),
        "advice_codes": _codes(headroom.advice),
        "caution_codes": _codes(headroom.cautions),
        "not_measured_codes": _codes(headroom.not_measured),
    }


def _backend_as_dict(backend: BackendResult) -> dict[str, Any]:
    gain = backend.headroom
    return {
        **_figures(backend),
        "state": backend.state.value,
        "verdict": backend_words.backend_verdict(backend),
        "reason": backend_words.backend_reason(backend),
        "caution": "" if gain is None else " ".join(cautions(gain)),
        "not_measured": backend_words.missing_of(backend),
        **_verdict_codes(backend.verdict),
        "caution_codes": _codes(backend.cautions),
        "not_measured_codes": _codes(backend.not_measured),
        "readings": None if backend.metrics is None else metrics_as_dict(backend.metrics),
        "stages": stages_as_dict(backend.stages),
        "operators": operators_as_dict(backend.operators),
        "threads": threads_as_dict(backend.threads),
    }


def _verdict_codes(verdict: Verdict | None) -> dict[str, str | None]:
    codes = (verdict.lowest, verdict.highest, verdict.objection) if verdict else (None, None, None)
    values = (None if code is None else code.value for code in codes)
    return dict(zip(("lowest_level", "highest_level", "objection"), values, strict=True))


def _codes(remarks: Iterable[Remark]) -> list[str]:
    return [remark.code.value for remark in remarks]


def _figures(record: Any) -> dict[str, Any]:
    """The fields that hold numbers, estimates and names, as plain data."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in values.items()
        if name not in NOT_FIGURES
    }

"""A training that runs already, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loadeval.report.json import finding_as_dict
from loadeval.report.wording.attach import headline, to_measure
from loadeval.report.wording.hangs import no_batch_came

if TYPE_CHECKING:
    from loadeval.analysis.attach.report import AttachedReport
    from loadeval.analysis.attach.workers import LoadingShares, WorkersReport
    from loadeval.analysis.estimate.stats import Estimate
    from loadeval.analysis.hangs.hang import Hang


SOURCE = "stacks at random moments, and what the kernel counts meanwhile; nothing is simulated"


def attached_as_dict(report: AttachedReport, hang: Hang | None = None) -> dict[str, Any]:
    """Everything that is known, ready for JSON; `hang` is why no batch comes, where none does."""
    hang = hang if hang is not None and hang.is_stuck else None
    return {
        "pid": report.training.pid,
        "command": None if report.training.command is None else list(report.training.command),
        "elapsed_ns": report.elapsed_ns,
        "ended": report.ended,
        "headline": headline(report) if hang is None else no_batch_came(hang),
        "hang": None if hang is None else hang_as_dict(hang),
        "moments": report.moments,
        "failed_moments": report.failed,
        "no_stacks": None if report.problem is None else report.problem.value,
        "thread": report.thread,
        "loader": report.loader,
        "wait_share": _estimate(report.wait),
        "loads_itself_share": _estimate(report.loads_itself),
        "epoch_starts_share": _estimate(report.starts),
        "at_most": _estimate(report.bound),
        "callers": [asdict(line) for line in report.callers],
        "own_lines": [asdict(line) for line in report.own_lines],
        "threads": None if report.threads is None else _loading(report.threads),
        "workers": None if report.workers is None else _workers(report.workers),
        "processes": [asdict(row) for row in report.processes],
        "machine": {
            "cpus": report.machine.cpus,
            "quota_cores": report.machine.quota_cores,
            "busy_cpus": report.machine.busy_cpus,
            "runnable_threads": report.machine.mean_runnable,
            "received_bytes_per_s": report.machine.received_bytes_per_s,
            "gpu_busy_percent": dict(report.machine.gpus),
        },
        "findings": [{**finding_as_dict(finding), "source": SOURCE} for finding in report.findings],
        "cost_share": report.cost,
        "to_measure": to_measure(report.training),
    }


def hang_as_dict(hang: Hang) -> dict[str, Any]:
    """Why no batch comes, ready for JSON."""
    return {
        "cause": hang.cause.value,
        "words": no_batch_came(hang),
        "pid": hang.pid,
        "worker": hang.worker,
        "batch": hang.batch,
        "sample": hang.sample,
        "waits_in": hang.waits.value,
        **asdict(hang.place),
        "idle_workers": list(hang.idle),
        "alike_workers": list(hang.alike),
        "signal": hang.signal,
        "shortage": None if hang.shortage is None else hang.shortage.value,
        "collective": hang.collective,
        "seen_ns": hang.seen_ns,
    }


def _workers(workers: WorkersReport) -> dict[str, Any]:
    return {
        "count": workers.count,
        "loading": _loading(workers.loading),
        "cpu_cores": workers.cpu_cores,
        "run_queue_share": workers.run_queue,
        "blocked_share": workers.blocked,
        "blocked_in": None if workers.blocked_in is None else asdict(workers.blocked_in),
        "read_bytes_per_s": workers.read_bytes_per_s,
        "disk_read_bytes_per_s": workers.disk_bytes_per_s,
    }


def _loading(loading: LoadingShares) -> dict[str, Any]:
    return {
        "count": loading.count,
        "stages": {stage.value: _estimate(part) for stage, part in loading.stages.items()},
        "lines": [asdict(line) for line in loading.lines],
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)

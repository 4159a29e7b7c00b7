"""What to change for each finding, in a few words: the setting, and its value where known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.analysis.findings.case import Case
from loadeval.analysis.findings.cpus import why_none_left
from loadeval.analysis.findings.more_workers import more_workers
from loadeval.analysis.findings.setting import prefetch_setting, workers_setting
from loadeval.report.formatting import share, shortened, speedup

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.analysis.findings.finding import Diagnosis, Finding
    from loadeval.analysis.report import Comparison

QUIET = "measure again on a quiet machine"
ALTERNATE = "measure with mode='alternate'"
IN_SHORT = ("finding", "lost", "evidence", "what to change")
LONGEST_CHANGE = 44
FEW_MEASURED = "see the batches that --full lists"


def findings_in_short(diagnosis: Diagnosis, comparison: Comparison) -> list[tuple[str, ...]]:
    """For each finding its rule, what it costs, how sure it is and what to change."""
    return [
        (
            one.rule,
            "unknown" if one.cost_share is None else share(one.cost_share),
            one.confidence,
            shortened(change_for(one, comparison), LONGEST_CHANGE),
        )
        for one in diagnosis.findings
    ]


def change_for(finding: Finding, comparison: Comparison) -> str:
    """What to change for `finding`; its advice says more."""
    told = CHANGES[finding.rule]
    return told if isinstance(told, str) else told(finding, comparison)


def _faster(_: Finding, comparison: Comparison) -> str:
    case, found = Case.of(*comparison.runs), comparison.headroom
    required = found.required or 1.0
    tried = more_workers(case, found, required).workers
    if tried is not None:
        return f"raise {workers_setting(case.loader)} from {case.loader.workers} to {tried}"
    return f"make a batch {speedup(required)} cheaper to load"


def _in_background(_: Finding, comparison: Comparison) -> str:
    loader = comparison.real.header.loader
    if loader.workers is None:
        return "load in the background"
    return f"raise {workers_setting(loader)} from {loader.workers}"


def _deeper(_: Finding, comparison: Comparison) -> str:
    loader = comparison.real.header.loader
    deeper = f" to keep {2 * loader.prefetch_depth} ready" if loader.prefetch_depth else ""
    return f"raise {prefetch_setting(loader)}{deeper}"


def _lighter(_: Finding, comparison: Comparison) -> str:
    case, loader = Case.of(*comparison.runs), comparison.real.header.loader
    if loader.workers is None:
        return "fewer threads, or cheaper transforms"
    if loader.workers == 0:
        return f"raise {workers_setting(loader)} from 0 to 1"
    # A loader that is too slow with its workers is slower with fewer.
    if loader.workers == 1 or (comparison.headroom.required or 0.0) > 1:
        none_left = bool(why_none_left(case))
        return f"cheaper transforms, {'or more CPUs' if none_left else 'less copying'}"
    return f"lower {workers_setting(loader)} from {loader.workers}"


def _fewer_workers(_: Finding, comparison: Comparison) -> str:
    header = comparison.real.header
    cpus = header.environment.get("cpus_usable")
    return f"lower {workers_setting(header.loader)} from {header.loader.workers} to {cpus}"


def _epochs(finding: Finding, comparison: Comparison) -> str:
    # Where it is likely, the first batch itself takes the time, and no start of workers.
    restarted = comparison.real.header.loader.persistent_workers is False
    if restarted and finding.confidence == "possible":
        return "try persistent_workers=True"
    return "longer epochs, or smaller batches"


CHANGES: dict[str, str | Callable[[Finding, Comparison], str]] = {
    "capacity": _faster,
    "zero workers": _in_background,
    "shallow queue": _deeper,
    "hand-over": "fewer and larger tensors, fewer bytes",
    "waiting": ALTERNATE,
    "contention": _lighter,
    "other programs": QUIET,
    "bursts": FEW_MEASURED,
    "epoch boundaries": _epochs,
    "slow epoch start": "keep file lists and indexes in a file",
    "falling throughput": "see what grows: waits or steps",
    "drift": QUIET,
    "outliers": FEW_MEASURED,
    "memory of the process": "find what keeps losses or batches",
    "memory of the workers": "find what the dataset keeps",
    "too many workers": _fewer_workers,
    "unpinned memory": "set pin_memory=True",
    "hidden wait": "nothing: the GPU did not wait",
    "look at the step": "profile the step, not the loader",
    "varying batches": ALTERNATE,
}
"""By the rule's name."""

"""What is said of the steps of `loadeval protocol`, and of what they found together."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from loadeval.analysis.doctor import CheckStatus
from loadeval.analysis.phases import FEWEST_BATCHES, Phase
from loadeval.report.formatting import (
    NOT_MEASURED,
    counted,
    duration,
    estimated,
    printable,
    share,
    size,
    speedup,
)
from loadeval.report.wording.doctor import check_text
from loadeval.report.wording.launch import nothing_measured
from loadeval.report.wording.runs import report_headline
from loadeval.report.wording.stages import why_no_stages_in_words
from loadeval.report.wording.verdict import (
    NO_CUDA_DEVICE,
    measured,
    not_measured,
    speedup_in_words,
)
from loadeval.runlog.run_folder.protocol_steps import NotRun, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.doctor import MachineCheck
    from loadeval.analysis.phases import Phases
    from loadeval.analysis.protocol import Answers
    from loadeval.analysis.report import Report
    from loadeval.runlog.run_folder.protocol_steps import Dropped, StepResult

PURPOSE = {
    Step.DOCTOR: "is this machine set up well for loading data?",
    Step.WARM_UP: "the command {batches}, so that its files are in the page cache",
    Step.REAL: "the command as it is, {batches}",
    Step.REPLAY: "the command with a few batches served over and over, {batches}",
    Step.ALTERNATE: "real and ideal loading in turn, {batches}",
    Step.COLD: "the command as it is, its files out of the page cache, {batches}",
    Step.NSYS: "the real run once more under nsys profile, {batches}",
}
WHY_NOT_RUN = {
    NotRun.NOT_ASKED_FOR: "not asked for",
    NotRun.NOT_INSTALLED: "{step} is not installed",
    NotRun.NO_LOADER: "the first run of the command measured nothing",
    NotRun.INTERRUPTED: "interrupted before",
    NotRun.NOT_COLD: "{why}",
}
NO_ANSWER = "No verdict: neither the real run nor the alternating one has a batch"
ONE_ANSWER = "The two ways to measure cannot be checked against each other: {missing}."
NO_SEPARATE = "the separate real and replay runs gave no speed-up"
NO_ALTERNATING = "the alternating run gave no speed-up"
NEITHER = "neither gave a speed-up"
DID_NOT_ALTERNATE = (
    "the training loader was logged instead: it keeps a state that would run ahead of training, or "
    "two loops read it at a time"
)
AGREEMENTS = {
    True: (
        "Both ways to measure agree within their 95% CIs: the separate real and replay runs give "
        "{separate}, the alternating run {alternating}."
    ),
    False: (
        "The two ways to measure disagree beyond their 95% CIs, by a factor of {apart:.2f}: the "
        "separate real and replay runs give {separate}, the alternating run {alternating}. "
        "{believe}"
    ),
    None: (
        "Whether both ways to measure agree is not known, for lack of a 95% CI: the separate real "
        "and replay runs give {separate}, the alternating run {alternating}. Measure more batches."
    ),
}
BELIEVE_ALTERNATING = (
    "Believe the alternating run: it compares neighbouring blocks of the same run, where separate "
    "runs also differ by what else changed between them."
)
BELIEVE_SEPARATE = "The alternating run is inconclusive: the verdict is that of the separate runs."
BELIEVE_NEITHER = "Neither is conclusive: measure more batches."
IN_SHORT = {
    True: "{speedup}: agrees within the 95% CIs",
    False: "{speedup}: differs {apart:.2f}x; trust the verdict above",
    None: "{speedup}: cannot be compared without a 95% CI",
}
STEPS_SAY = (
    "The verdict is the alternating run's where that is conclusive. The real run and its replay "
    "measure the same as NVIDIA's documents do, as a check. The warm-up and nsys do not count."
)
NSYS_SAYS = (
    "A profiler slows steps down, so nothing on this page is from the run under nsys. Where a GPU "
    "row is empty while training waits, the GPU is idle for lack of input."
)
DOCTOR_CAPTION = (
    "What loadeval doctor says of this machine, for the loader that was measured where there is one"
)
MOST_NAMES = 4
MOST_LOST = {
    Phase.STORAGE: "Most is lost to storage: reading files that are not in memory.",
    Phase.PREPARATION: "Most is lost to preparing: decoding, transforms and collating.",
    Phase.NEITHER: "Next to nothing is lost to storage, or to preparing.",
}
PHASES_CAPTION = "Where a batch's time goes while its files are not in memory, with 95% CI"
PHASES_HEAD = ("", "per batch", "of the time")
TOO_FEW_COLD = (
    "what storage costs: the cold, the real and the replayed run each need "
    f"{FEWEST_BATCHES} batches, the cold one in its first epoch"
)
DROPPED = "{files} ({size}) dropped from the page cache."
STAYED = (
    "{share} of them stayed in memory, as files do that another program has mapped: storage costs "
    "more than this."
)
LEAST_STAYED = 0.05
"""If less of the files stayed in memory, the rest shows what storage costs."""
SEPARATE, ALTERNATING = "separate runs", "alternating run"
HEAD = ("", "verdict", "if loading were free", "time lost", "measured")


def purpose(step: Step, batches: int | None) -> str:
    """What a step is for."""
    span = "to its end" if batches is None else f"for {counted(batches, 'batch', 'batches')}"
    return PURPOSE[step].format(batches=span)


def outcome(result: StepResult) -> str:
    """How a step ended, in a few words, without what it measured."""
    if result.not_run is not None:
        why = WHY_NOT_RUN[result.not_run]
        return f"not run: {why.format(step=result.step.value, why=result.why_not_cold)}"
    if result.signal is not None:
        return f"interrupted by {signal.Signals(result.signal).name}"
    if result.failed:
        return f"failed: {how_it_ended(result.code or 0)}"
    return "done: ended after enough batches" if result.was_stopped else "done"


def how_it_ended(code: int) -> str:
    """An exit code of the command, or the signal that ended it."""
    if code >= 0:
        return f"the command exited with {code}"
    try:
        return f"the command was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the command was ended by signal {-code}"


def why_nothing_measured(result: StepResult) -> str:
    """Why a step has no batch; "" where it has."""
    return "" if result.nothing is None else nothing_measured(*result.nothing)


def agreement(answers: Answers) -> str:
    """Whether both ways to measure agree; if not, by how much they differ and what to believe."""
    if answers.speedups is None:
        known = (_has_speedup(answers.separate), _has_speedup(answers.alternating))
        names = {(True, False): NO_ALTERNATING, (False, True): NO_SEPARATE}
        return ONE_ANSWER.format(missing=names.get(known, NEITHER))
    separate, alternating = (estimated(estimate, speedup) for estimate in answers.speedups)
    return AGREEMENTS[answers.agree].format(
        separate=separate, alternating=alternating, apart=answers.apart, believe=_believe(answers)
    )


def agreement_in_short(answers: Answers) -> list[tuple[str, str]]:
    """The answer that is not the best, and whether it agrees; nothing where there is but one."""
    if answers.speedups is None:
        return []
    separate, alternating = answers.speedups
    is_best = answers.best is answers.alternating
    label, other = (SEPARATE, separate) if is_best else (ALTERNATING, alternating)
    sentence = IN_SHORT[answers.agree].format(
        speedup=estimated(other, speedup), apart=answers.apart
    )
    return [(label, sentence)]


def phases_in_short(phases: Phases | None) -> list[tuple[str, str]]:
    """What is lost to storage and to preparing; nothing where that was not asked for."""
    if phases is None:
        return []
    parts = ", ".join(f"{name} {part}" for name, _, part in phase_rows(phases))
    return [("cold files", f"{parts} of {duration(phases.cold_ns.value)} a batch")]


def phase_rows(phases: Phases) -> list[tuple[str, str, str]]:
    """Each phase: its name, its time in a batch, and its share of it."""
    lost = {
        Phase.STORAGE: phases.storage_ns,
        Phase.PREPARATION: phases.preparation_ns,
        Phase.NEITHER: phases.ideal_ns,
    }
    return [
        (phase.value, estimated(ns, duration), share(phases.shares[phase]))
        for phase, ns in lost.items()
    ]


def most_lost(phases: Phases) -> str:
    """What most is lost to, in a sentence."""
    return MOST_LOST[phases.most]


def dropped_in_words(dropped: Dropped) -> str:
    """What was dropped from the page cache, and whether it is gone."""
    files = counted(dropped.files, "file", "files")
    text = DROPPED.format(files=files, size=size(dropped.nbytes))
    if dropped.stayed is None or dropped.stayed < LEAST_STAYED:
        return text
    return f"{text} {STAYED.format(share=share(dropped.stayed))}"


def why_no_phases(results: Sequence[StepResult], phases: Phases | None) -> list[str]:
    """Why storage and preparing are not told apart, where the cold run was made."""
    was_run = any(result.step is Step.COLD and result.batches for result in results)
    return [TOO_FEW_COLD] if was_run and phases is None else []


def answer_rows(answers: Answers) -> list[tuple[str, ...]]:
    """A row for each way to measure: verdict, speed-up, time lost, and what was measured."""
    ways = ((ALTERNATING, answers.alternating), (SEPARATE, answers.separate))
    return [(name, *_answer(report)) for name, report in ways if report is not None]


def changes_in_short(checks: Sequence[MachineCheck]) -> str:
    """Which checks found something to change."""
    names = [check.name for check in checks if check.status is CheckStatus.CHANGE]
    return f"to change: {', '.join(names)}" if names else "nothing to change"


def names_in_short(missing: Sequence[tuple[str, str]]) -> str:
    """The first of these labels; the page has their reasons."""
    names = list(dict.fromkeys(label.removeprefix("doctor: ") for label, _ in missing))
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


def counted_batches(result: StepResult) -> str:
    """How many batches a step measured; "" where the command was not run."""
    return "" if result.code is None else f"{result.batches:,}"


def all_not_measured(
    results: Sequence[StepResult],
    checks: Sequence[MachineCheck],
    answers: Answers,
    problems: Sequence[str],
) -> list[tuple[str, str]]:
    """What was not measured, and why: steps, reported runs, and the machine."""
    rows = [(result.step.value, _missing(result)) for result in results if _missing(result)]
    if answers.alternating is not None and answers.alternating.comparison is None:
        rows.append((Step.ALTERNATE.value, DID_NOT_ALTERNATE))
    rows += [("comparison", problem) for problem in problems]
    if answers.best is not None:
        rows += _of_runs(answers.best)
    rows += [
        (f"doctor: {check.name}", check_text(check))
        for check in checks
        if check.status is CheckStatus.NOT_MEASURED
    ]
    return [(label, printable(why)) for label, why in rows]


def _missing(result: StepResult) -> str:
    is_well = not (result.failed or result.signal or result.not_run)
    reasons = [] if is_well else [outcome(result)]
    reasons += filter(None, [why_nothing_measured(result)])
    if result.step is Step.NSYS and result.code is not None and result.profile is None:
        reasons.append("nsys wrote no report")
    return "; ".join(reasons)


def _of_runs(report: Report) -> list[tuple[str, str]]:
    comparison = report.comparison
    rows = (
        []
        if comparison is None
        else [("verdict", line) for line in not_measured(comparison.headroom)]
    )
    for run in report.runs:
        rows += [(f"{probe} metrics", why) for probe, why in run.metrics.missing]
        if run.no_stages is not None:
            rows.append(("stages", why_no_stages_in_words(run.no_stages)))
        if run.metrics.gpu_idle_ns.get("real") is None:
            rows.append(("GPU idle while waiting", NO_CUDA_DEVICE))
    for _, diagnosis in report.diagnoses:
        unknown = sum(check.outcome == NOT_MEASURED for check in diagnosis.checks)
        if unknown:
            many = f"{unknown} of {len(diagnosis.checks)}"
            rows.append(("findings", f"{many} checks, whose reasons are below the findings"))
    return list(dict.fromkeys(rows))


def _believe(answers: Answers) -> str:
    best = answers.best
    if best is None or best.comparison is None or best.comparison.headroom.verdict.objection:
        return BELIEVE_NEITHER
    return BELIEVE_ALTERNATING if best is answers.alternating else BELIEVE_SEPARATE


def _has_speedup(report: Report | None) -> bool:
    comparison = None if report is None else report.comparison
    return comparison is not None and comparison.headroom.speedup is not None


def _answer(report: Report) -> tuple[str, str, str, str]:
    if report.comparison is None:
        return (report_headline(report), NOT_MEASURED, NOT_MEASURED, "")
    headroom = report.comparison.headroom
    cells = (speedup_in_words(headroom), estimated(headroom.lost_share, share), measured(headroom))
    return (str(headroom.verdict), *cells)

"""`loadeval protocol`: is loading the bottleneck? Every measurement of it, in one go."""

from __future__ import annotations

import shlex
import shutil
import time
from contextlib import suppress
from pathlib import Path  # noqa: TC003 - typer reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from loadeval.analysis.doctor import CheckStatus, LoaderPlan, checkup
from loadeval.analysis.phases import phases_of
from loadeval.analysis.protocol import Answers, plan_of
from loadeval.cli.console import FAILED, Command, ctrl_c_exits, errors_printed, report_of, say
from loadeval.cli.run import ALLOW_CHANGES, SET
from loadeval.errors import LoadevalError, UsageError
from loadeval.launch.command import CannotStartError, name_of
from loadeval.launch.folder import new_folder, trainings_in
from loadeval.launch.protocol import ProtocolPlan, run_steps
from loadeval.launch.settings import RunSettings, settings_in
from loadeval.launch.settings import check as check_settings
from loadeval.probes.machine import read_machine
from loadeval.probes.page_cache import check_droppable, files_below
from loadeval.report.extra import check_installed
from loadeval.report.formatting import printable
from loadeval.report.page.page import default_path, write_page
from loadeval.report.page.protocol import protocol_page
from loadeval.report.terminal.protocol import ProtocolReport, protocol_screen
from loadeval.report.wording.doctor import check_text
from loadeval.report.wording.protocol import outcome, purpose
from loadeval.runlog.log_file.reader import read_run
from loadeval.runlog.run_folder.folder import logs_in
from loadeval.runlog.run_folder.protocol_steps import FOLDERS, NotRun, Step, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.analysis.doctor import MachineCheck
    from loadeval.analysis.phases import Phases
    from loadeval.analysis.report import Report
    from loadeval.probes.machine import Machine

PROTOCOL_EXIT_CODES = (
    "Exit codes: 0 every step was made; 1 the command failed in a step, or nothing was measured; "
    "2 wrong usage; 126 and 127 the command could not be started; 128 + N signal N ended it, 130 "
    "for Ctrl-C."
)
SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a process."""
ENOUGH, FEW = 300, 50
STOP_AFTER = (
    "In each run, end the program as Ctrl-C does once the training loader has served N batches; 0 "
    "lets it run to its end."
)
WARM_UP = "The same for the warm-up; 0 leaves it out."
NSYS = "Run the command once more, under nsys profile, where that is installed."
COLD = (
    "Run the command once more, its files out of the page cache, to tell what storage costs from "
    "what preparing costs."
)
DATA = (
    "With --cold: the folder of the data set; by default what the command opened. Can be given "
    "several times."
)
OUTPUT = "The folder of the page and the logs, new or empty; by default one in loadeval-runs."


def protocol(  # noqa: PLR0913, PLR0917 - the options of the command
    command: Command,
    stop_after: Annotated[
        int, typer.Option("--stop-after", metavar="N", min=0, help=STOP_AFTER)
    ] = ENOUGH,
    warm_up: Annotated[int, typer.Option("--warm-up", metavar="N", min=0, help=WARM_UP)] = FEW,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)
    ] = None,
    allow_changes: Annotated[bool, typer.Option("--allow-changes", help=ALLOW_CHANGES)] = False,
    cold: Annotated[bool, typer.Option("--cold", help=COLD)] = False,
    data: Annotated[list[Path] | None, typer.Option("--data", metavar="DIR", help=DATA)] = None,
    nsys: Annotated[bool, typer.Option("--nsys", help=NSYS)] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help=OUTPUT)
    ] = None,
) -> None:
    """Find out whether data loading is the bottleneck of a command: all measurements in one go.

    Checks the machine, then runs the command four times: to warm up, as it is, with a few batches
    served over and over, and with real and ideal loading in turn. Ends with one screen and one page
    of verdict, stages, findings, and what could not be measured. What the command writes it writes
    each time: let it write where that does no harm.
    """
    nsys_path = shutil.which("nsys") if nsys else None
    with errors_printed():
        check_installed("plotly", "a page")  # before it is measured for minutes
        run_settings = RunSettings(
            "", settings=settings_in(settings or ()), allow_changes=allow_changes
        )
        check_settings(run_settings)
        if data and not cold:
            raise UsageError("--data names the files of --cold: pass both, or leave it out")
        if cold and data:
            check_droppable(files_below(data))
        folder = new_folder(name_of(command), time.strftime("%Y%m%d-%H%M%S"), output)
    plan = ProtocolPlan(
        command, folder, stop_after or None, warm_up, nsys_path, run_settings, cold, data or ()
    )
    say(f"loadeval: page and logs in {printable(folder)}")
    with ctrl_c_exits():
        results, machine = _measured(plan, asked_for_nsys=nsys)
        with errors_printed():
            _report(plan, results, machine, _command_line(plan, nsys=nsys))
    ended_by = next((result.signal for result in results if result.signal is not None), None)
    if ended_by is not None:
        raise typer.Exit(SIGNALLED + ended_by)
    if any(result.failed for result in results) or not any(result.batches for result in results):
        raise typer.Exit(FAILED)


def _measured(plan: ProtocolPlan, *, asked_for_nsys: bool) -> tuple[list[StepResult], Machine]:
    numbers = {step: at for at, step in enumerate([Step.DOCTOR, *plan.steps], 1)}

    def begin(step: Step) -> None:
        what = purpose(step, plan.batches(step))
        say(f"loadeval: step {numbers[step]} of {len(numbers)}, {step.value}: {what}")

    def ended(result: StepResult) -> None:
        if result.failed:
            say(f"loadeval: {result.step.value} {outcome(result)}")

    begin(Step.DOCTOR)
    machine = read_machine()
    for check in _to_change(checkup(machine, LoaderPlan())):
        say(f"loadeval: {check.name}: {check_text(check)}")
    try:
        results = run_steps(plan, begin, ended)
    except CannotStartError as error:
        with suppress(OSError):
            plan.folder.rmdir()
        say(f"Error: {printable(error)}")
        raise typer.Exit(error.code) from None
    if plan.nsys is None:
        why = NotRun.NOT_INSTALLED if asked_for_nsys else NotRun.NOT_ASKED_FOR
        results.append(StepResult(Step.NSYS, why))
    if asked_for_nsys and plan.nsys is None:
        say("loadeval: nsys: not measured: nsys is not installed")
    return [StepResult(Step.DOCTOR), *results], machine


def _report(
    plan: ProtocolPlan, results: Sequence[StepResult], machine: Machine, typed: str
) -> None:
    """Print the screen, and write the page. Raises LoadevalError if it cannot be written."""
    problems: list[str] = []
    answers = Answers(
        _answer(plan, Step.REAL, results, problems),
        _answer(plan, Step.ALTERNATE, results, problems),
    )
    best = answers.best
    loader = LoaderPlan() if best is None else plan_of(best.runs[0].run.header.loader)
    protocol_report = ProtocolReport(
        typed, plan.folder, results, checkup(machine, loader), answers, problems, _phases(plan)
    )
    page = default_path(plan.folder)
    write_page(protocol_page(protocol_report, page), page)
    more = [("page", str(page))]
    if protocol_report.nsys is not None:
        more.append(("nsys", str(protocol_report.nsys)))
    for line in protocol_screen(protocol_report, more, Console(stderr=True).width):
        say(line)


def _phases(plan: ProtocolPlan) -> Phases | None:
    """What is lost to storage, and to preparing, in the first rank of the training."""
    folders = (plan.folder / FOLDERS[Step.COLD], plan.folder / FOLDERS[Step.REAL])
    if not plan.cold or not all(folder.exists() for folder in folders):
        return None
    cold, real = (next(iter(trainings_in(folder)), None) for folder in folders)
    if cold is None or real is None or not real.replayed:
        return None
    logs = (folders[0] / cold.logs[0], folders[1] / real.logs[0], folders[1] / real.replayed[0])
    return phases_of(*map(read_run, logs))


def _answer(
    plan: ProtocolPlan, step: Step, results: Sequence[StepResult], problems: list[str]
) -> Report | None:
    """What the logs of a step say; where they cannot be compared, what its first run says."""
    if not any(result.step is step and result.batches for result in results):
        return None
    folder = plan.folder / FOLDERS[step]
    try:
        return report_of([folder])
    except LoadevalError as error:
        problems.append(str(error))
    try:
        return report_of(logs_in(folder)[:1])
    except LoadevalError:
        return None


def _to_change(checks: Sequence[MachineCheck]) -> list[MachineCheck]:
    return [check for check in checks if check.status is CheckStatus.CHANGE]


def _command_line(plan: ProtocolPlan, *, nsys: bool) -> str:
    options = ["--stop-after", str(plan.stop_after or 0), "--warm-up", str(plan.warm_up)]
    for name, value in plan.settings.settings.items():
        options += ["--set", f"{name}={value}"]
    more = ["--allow-changes"] if plan.settings.allow_changes else []
    more += ["--cold"] if plan.cold else []
    more += [word for folder in plan.data for word in ("--data", str(folder))]
    more += ["--nsys"] if nsys else []
    return shlex.join(["loadeval", "protocol", *options, *more, "--", *plan.command])

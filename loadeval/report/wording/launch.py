"""What is said at the end of `loadeval run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadeval.data.folder import NothingMeasured
from loadeval.report.formatting import counted, printable

if TYPE_CHECKING:
    from loadeval.data.folder import LoaderRecord

WHY_NOTHING = {
    NothingMeasured.NO_PYTHON: (
        "the command started no Python that can be measured; options -E, -I and -S, an empty "
        "environment, and a PYTHONPATH=. within the command keep loadeval out. Leave them out, "
        "write PYTHONPATH=.:$PYTHONPATH, or call loadeval.install() in the program"
    ),
    NothingMeasured.NO_LOADER: (
        "the program iterated no data loader that loadeval knows; wrap what it iterates with "
        "loadeval.LoaderEvaluator(loader), which takes any iterable or function. If the command "
        "sets PYTHONPATH for a Python that it starts, write PYTHONPATH=.:$PYTHONPATH"
    ),
    NothingMeasured.REFUSED: "{what}",
    NothingMeasured.FAILED: (
        "{what}. Is loadeval installed in the Python of the program, and is the folder writable?"
    ),
    NothingMeasured.NO_BATCH: (
        "the command ended with {what} before the data loader that it iterated served a batch"
    ),
    NothingMeasured.ENDED: "the command ended with {what} before it iterated a data loader",
}
NO_REASON = "a program failed to measure its loader, and could not write down why"
NO_TRAINING = (
    "No training was seen: no data loader was iterated with gradients on, or none with optimizer "
    "steps between its batches. What was iterated was logged:"
)
TRAINING = "Training {number} of {count}: {log}"
LOGS_ARE_GONE = "loadeval: there is no report: {folder} was removed while the program ran"
STOPPED = (
    "loadeval: ended the program as Ctrl-C does, after the {stop_after} batches of --stop-after"
)
NOT_OVERRIDDEN = (
    "The settings of --set reached no loader: none of those that were iterated was "
    "recognised in its role when its iterator was asked for"
)
UNCONFIRMED = "no optimizer step seen"
LOG_MODE_SAYS = (
    "Mode log shows how long training waited, not what it would gain: loading also slows the steps "
    "beside it. For the gain: loadeval run --mode alternate -- COMMAND"
)
NEARLY_WHOLE = 0.02
"""Batches to a step: where they are no whole number, the program or its last epoch was cut off."""
NOT_ALTERNATED = (
    "Logged, not alternated: this loader's state_dict would run ahead of the training, or another "
    "loader alternated at the same time. For the gain, wrap it: loadeval.LoaderEvaluator(loader, "
    "mode='replay', log_file='ideal.jsonl'), and compare: loadeval compare THIS.jsonl ideal.jsonl"
)


def nothing_measured(why: NothingMeasured, what: str) -> str:
    """That there is no log, why, and what to do."""
    what = what or NO_REASON
    return printable(f"Nothing was measured: {WHY_NOTHING[why].format(what=what)}")


def loader_facts(record: LoaderRecord, batches: int, samples: int | None) -> str:
    """How many batches it served, and how many optimizer steps were made of them."""
    facts = [
        counted(batches, "batch", "batches"),
        counted(record.epochs, "epoch", "epochs"),
    ]
    if record.optimizer_steps:
        steps = counted(record.optimizer_steps, "optimizer step", "optimizer steps")
        each = batches / record.optimizer_steps
        is_whole = samples and round(each) >= 1 and abs(each - round(each)) < NEARLY_WHOLE
        size = f" of {samples / batches * round(each):.4g} samples" if samples and is_whole else ""
        facts.append(steps + size)
    elif record.role == "training":
        facts.append(UNCONFIRMED)
    return ", ".join(facts)

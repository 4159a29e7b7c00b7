"""What a thread does, as its stack shows."""

from __future__ import annotations

import pytest

from loadeval.analysis.attach.marks import (
    Activity,
    Reading,
    is_library,
    lines_to_know,
    place_of,
    plain_name,
    read_stack,
)
from loadeval.probes.stacks import Frame
from tests import attached
from tests.attached import MARKS, SOURCES, frame


def read(stack: attached.Stack) -> Reading:
    return read_stack(stack, MARKS, SOURCES)


def test_a_training_that_waits_says_where_its_program_asked() -> None:
    reading = read(attached.WAIT)
    assert reading.waits
    assert not reading.loads_itself
    assert not reading.starts
    assert reading.loader == "DataLoader"
    assert reading.caller is not None
    assert place_of(reading.caller) == "train/train.py:48 main"
    assert reading.stage is None


def test_a_step_waits_for_nothing() -> None:
    reading = read(attached.STEP)
    assert reading == Reading()
    assert reading.stage is None
    assert not reading.waits


def test_an_epoch_that_begins() -> None:
    assert read(attached.START).starts


def test_a_training_that_loads_its_batch_itself_waits() -> None:
    reading = read(attached.OWN_LOADING)
    assert reading.waits
    assert reading.loads_itself
    assert reading.stage is Activity.FETCHES
    assert reading.inside == attached.DATASET


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (attached.ASK, Activity.ASKS),
        (attached.SEND, Activity.SENDS),
        (attached.FETCH, Activity.FETCHES),
        (attached.COLLATE, Activity.COLLATES),
        (attached.LOOP, Activity.LOADS),
    ],
)
def test_the_stages_of_a_worker(stack: attached.Stack, stage: Activity) -> None:
    """Frames of the training process, when it was forked, are not the worker's."""
    reading = read(stack)
    assert reading.stage is stage
    assert reading.loads_for_others
    assert not reading.waits


def test_without_the_text_of_a_line_the_function_tells_what_it_can() -> None:
    assert read_stack(attached.COLLATE, MARKS, {}).stage is Activity.FETCHES


def test_a_loader_that_a_library_reads_is_asked_for_by_the_program() -> None:
    """Frames of a Trainer stand between."""
    trainer = frame("fit", f"{attached.PACKAGES}/lightning/trainer.py", 7)
    stack = (*attached.WAIT[:2], trainer, *attached.MAIN)
    caller = read(stack).caller
    assert caller is not None
    assert caller.line == 48


def test_a_program_that_is_all_library_has_no_line_that_asks() -> None:
    assert read(attached.WAIT[:2]).caller is None


def test_the_lines_whose_text_is_needed() -> None:
    """Those of functions that do different things by line."""
    assert lines_to_know([attached.COLLATE, attached.STEP], MARKS) == {
        (f"{attached.TORCH}/_utils/fetch.py", attached.COLLATES_AT),
        (f"{attached.TORCH}/_utils/worker.py", 15),
    }


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("Photos.__getitem__", "__getitem__"),
        ("fetch.<locals>.<listcomp>", "fetch"),
        ("make.<locals>.load", "load"),
        ("<listcomp>", "<listcomp>"),
        ("<module>", "<module>"),
    ],
)
def test_names_are_those_of_functions(function: str, name: str) -> None:
    """Python 3.10 tells nothing else, and later ones inline comprehensions."""
    assert plain_name(frame(function)) == name


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        ("/usr/lib/python3.12/queue.py", True),
        ("/venv/lib/python3.10/site-packages/torch/x.py", True),
        ("<frozen importlib._bootstrap>", True),
        ("/home/me/train.py", False),
        ("<stdin>", False),
    ],
)
def test_files_of_python_and_of_packages(file: str, is_one: bool) -> None:
    assert is_library(frame("f", file)) is is_one


def test_compiled_code_is_no_line_of_the_program() -> None:
    assert is_library(Frame("read", "/home/me/fast.so", None, native=True))
    assert place_of(Frame("read", "/home/me/fast.so", None)) == "me/fast.so read"

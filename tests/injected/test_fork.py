"""A program that forks in the middle of an epoch: its log is its own, and its children's theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadeval import read_run
from tests.injected.zygote import MODES, Zygote

FORKING = """
PARENT = os.getpid()
loader = measured(Loader())
seen = []
for batch in loader:
    seen.append(batch)
    if len(seen) == 10:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            {child}
        else:
            _, status = os.waitpid(pid, 0)
            print("child", os.waitstatus_to_exitcode(status))
if os.getpid() == PARENT:
    print(len(seen))
"""
CHILDREN = {
    "ends": "sys.exit(3)",
    "raises": "raise ValueError('in the child')",
    "goes on": "pass",
    "leaves the loop": "break",
    "closes the loader": "loader.close() if MODE else None; os._exit(0)",
    "trains with its parent's loader": "os._exit(len(epoch(loader, 0)))",
    "trains by itself": "os._exit(len(epoch(measured(Loader(), log_file='other.jsonl'), 0)))",
    "reads what was measured": "MODE and loader.recorded(); os._exit(0)",
}
STEPS = {
    "a pool": "with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, 2, -3]))",
    "a process": (
        "child = multiprocessing.Process(target=epoch, args=(loader,)); child.start();"
        "child.join(); print(child.exitcode)"
    ),
    "a command": (
        "print(subprocess.run(['echo', 'hello'], capture_output=True, preexec_fn=os.setsid).stdout)"
    ),
    "a fork of another thread": (
        "thread = threading.Thread(target=fork_and_wait); thread.start(); thread.join()"
    ),
    "a fork of a fork": "fork_and_wait(fork_and_wait)",
}
STEP = """
import multiprocessing, subprocess
multiprocessing.set_start_method("fork")
def fork_and_wait(within=lambda: None):
    pid = os.fork()
    if pid == 0:
        within()
        os._exit(len(epoch(loader, 0)) - 33)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
loader = measured(Loader())
seen = []
for batch in loader:
    seen.append(batch)
    if len(seen) == 10:
        sys.stdout.flush()
        {step}
print(len(seen))
"""


def check(zygote: Zygote, code: str, folder: Path, mode: Any) -> None:
    """All is as without loadeval, and the log has each of the 40 batches once."""
    ended = zygote.check(code, folder, mode)
    run = read_run(ended.folder / "run.jsonl")
    assert (run.closed, run.batches) == (True, 40)
    assert [end.cause for end in run.ends] == ["exhausted"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN)
def test_a_child_leaves_its_parents_log_alone(
    zygote: Zygote, tmp_path: Path, child: str, mode: str
) -> None:
    check(zygote, FORKING.format(child=child), tmp_path, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_processes_that_a_step_starts(zygote: Zygote, tmp_path: Path, step: str, mode: str) -> None:
    check(zygote, STEP.format(step=step), tmp_path, mode)


@pytest.mark.check
def test_a_fork_while_the_log_is_written(zygote: Zygote, tmp_path: Path) -> None:
    """Many forks, at whatever moment, of a program whose log never rests."""
    code = """
if MODE:
    import loadeval.core.recorder as recorder
    recorder.FLUSH_INTERVAL_S = 0.0005
loader = measured(Loader(wait_s=0.01))
for batch in loader:
    if batch % 4 == 0:
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        print(os.waitpid(pid, 0)[1], flush=True)
"""
    check(zygote, code, tmp_path, "log")

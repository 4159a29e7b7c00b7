"""Signals at any moment: the program gets them as without loadeval."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from loadeval import read_run
from tests.injected.zygote import MODES, Zygote

ENDLESS = """
loader = measured(Loader(10**6, 0.001))
for number, batch in enumerate(loader):
    if number == 30:
        print("ready", flush=True)
"""
GOING_ON = """
import signal
class Interrupted(Loader):
    "Gets a signal while it loads some of its batches, and can be read on."
    def __iter__(self):
        self.number, self.left = 0, {{3, 4, 30, 31, 60, 90, 120, 150}}
        return self
    def __next__(self):
        if self.number in self.left:
            self.left.discard(self.number)
            os.kill(os.getpid(), {number})
        if self.number == self.batches:
            raise StopIteration
        self.number += 1
        return self.number
{handled}
seen, caught = [], 0
iterator = iter(measured(Interrupted(200)))
while True:
    try:
        seen.append(next(iterator))
    except StopIteration:
        break
    except KeyboardInterrupt:
        caught += 1
print(caught, sorted(seen))
"""
OURS = """
import signal
from loadeval.data.log import RunLog
from loadeval.probes import Probe
class Killing(Probe):
    name = "probe"
    def read(self):
        os.kill(os.getpid(), {number})
        return {{}}
if MODE and {by_log}:
    append = RunLog.append
    def killing(self, text):
        append(self, text)
        if threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), {number})
    RunLog.append = killing
caught = []
signal.signal({number}, lambda number, frame: caught.append(threading.current_thread().name))
options = {{"probes": () if {by_log} else [Killing()], "probe_interval_s": 0.01}}
batches = epoch(measured(Loader(60, 0.001), **options), 0.001)
assert not MODE or caught
print(len(batches), set(caught) <= {{"MainThread"}})
"""
BLOCKED = """
import signal
loader = measured(Loader(100, 0.001))
for batch in loader:
    if batch == 50:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        print("saved", signal.SIGTERM in signal.sigpending(), flush=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
"""
HANDLED = """
import signal
loader = measured(Loader(40, 0.001))
def note(number, frame):
    if MODE:
        {does}
    signal.setitimer(signal.ITIMER_REAL, 0.002)
signal.signal(signal.SIGALRM, note)
signal.setitimer(signal.ITIMER_REAL, 0.01)
print(len(epoch(loader, 0.001)), len(epoch(loader, 0.001)))
signal.signal(signal.SIGALRM, signal.SIG_IGN)
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_ends_a_program(
    zygote: Zygote, tmp_path: Path, number: signal.Signals, mode: str
) -> None:
    """Its exit code and what it prints are its own, and its log reads."""
    ended = []
    for each in (None, mode):
        program = zygote.start(ENDLESS, tmp_path / str(each), each)
        program.prints("ready\n")
        program.send(number)
        ended.append(program.ended())
    plain, done = ended
    assert (done.code, done.out) == (plain.code, plain.out)
    if number == signal.SIGINT:
        assert done.err.splitlines()[-1] == plain.err.splitlines()[-1] == "KeyboardInterrupt"
    run = read_run(tmp_path / mode / "run.jsonl")
    assert run.closed is (number == signal.SIGINT)


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize(
    ("number", "handled"),
    [(signal.SIGINT, ""), (signal.SIGTERM, "signal.signal(signal.SIGTERM, lambda *_: None)")],
)
def test_a_program_that_goes_on_after_signals(
    zygote: Zygote, tmp_path: Path, number: signal.Signals, handled: str, mode: str
) -> None:
    """It gets every batch, also of those that were prefetched then."""
    code = GOING_ON.format(number=int(number), handled=handled)
    ended = zygote.check(code, tmp_path, mode)
    assert read_run(ended.folder / "run.jsonl").closed


@pytest.mark.parametrize("by_log", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_a_thread_of_ours_works(
    zygote: Zygote, tmp_path: Path, number: signal.Signals, by_log: bool
) -> None:
    """It is handled where Python handles all of them, in the program's main thread."""
    ended = zygote.check(OURS.format(number=int(number), by_log=by_log), tmp_path)
    assert read_run(ended.folder / "run.jsonl").closed


def test_a_signal_that_a_program_blocks_waits_for_it(zygote: Zygote, tmp_path: Path) -> None:
    """A program blocks one while it saves a checkpoint: no thread of ours takes it instead."""
    assert zygote.check(BLOCKED, tmp_path).out == "saved True\n"


@pytest.mark.parametrize("does", ["loader.recorded()", "next(iter(loader))", "loader.close()"])
def test_a_handler_that_uses_the_loader(zygote: Zygote, tmp_path: Path, does: str) -> None:
    """It may come in the middle of anything that we do."""
    ended = zygote.check(HANDLED.format(does=does), tmp_path, most_warnings=2)
    assert read_run(ended.folder / "run.jsonl").closed

"""Programs that end, become others, or leave things to the garbage collector as they like."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadeval import read_run
from tests.injected.zygote import MODES, Zygote

ENDING = """
iterator = iter(measured(Loader()))
for _ in range(20):
    next(iterator)
print("twenty", flush=True)
{end}
"""
HOLDING_ITS_ERROR = """
import gc
class Failing(Loader):
    fails = False
    def __iter__(self):
        yield from range(3)
        if self.fails:
            raise OSError("disk gone")
gc.disable()
failing = Failing()
loader = measured(failing)
for _ in range(4):
    try:
        print(len(list(loader)), flush=True)
    except OSError as error:
        print(error)
        failing.error = error
    failing.fails = True
"""
DAEMON = """
def daemon():
    "As in the book: a child of a child, in a session of its own, without our files."
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 1024)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
{before}
daemon()
{after}
seen = epoch(loader)
with open("trained", "w") as file:
    file.write(f"{{len(seen)}} {{sorted(os.listdir('/proc/self/fd'))[:3]}}")
os.rename("trained", "done")
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("end", "closed"),
    [
        ("pass", True),
        ("sys.exit(7)", True),
        ("raise ValueError('in training')", True),
        ("os._exit(7)", False),
        ("os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])", False),
        ("os.abort()", False),
    ],
)
def test_a_program_that_ends_with_an_open_epoch(
    zygote: Zygote, tmp_path: Path, end: str, closed: bool, mode: str
) -> None:
    """The last second may be missing where Python has no chance to end, and the rest reads."""
    ended = zygote.check(ENDING.format(end=end), tmp_path, mode)
    run = read_run(ended.folder / "run.jsonl")
    assert run.closed is closed
    assert not closed or run.batches == 20


@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_a_program_that_ends_with_epochs_that_nothing_has_freed(
    zygote: Zygote, tmp_path: Path, mode: str
) -> None:
    """Nothing is printed when Python frees them at its end."""
    ended = zygote.check(HOLDING_ITS_ERROR, tmp_path, mode)
    assert "Exception ignored" not in ended.err


@pytest.mark.parametrize("early", [True, False])
def test_a_daemon(zygote: Zygote, tmp_path: Path, early: bool) -> None:
    """It closes all files, ours too. Its loader is measured if that was wrapped after it."""
    wrap = "loader = measured(Loader())"
    code = DAEMON.format(before=wrap if early else "", after="" if early else wrap)
    until = "\nwhile not os.path.exists('done'): time.sleep(0.01)\n"
    parent = "import subprocess; print(os.waitpid(pid, 0)[1])"
    code = (
        f"pid = os.fork()\nif pid == 0:\n    exec('''{code}''')\n    os._exit(0)\n{parent}{until}"
    )
    for mode in (None, "log"):
        ended = zygote.run(code, tmp_path / str(mode), mode)
        assert (ended.code, ended.out) == (0, "0\n"), ended.err
    assert (tmp_path / "log" / "done").read_text() == (tmp_path / "None" / "done").read_text()
    run = read_run(tmp_path / "log" / "run.jsonl")
    assert run.batches == (0 if early else 40)


GARBAGE = """
import gc
from loadeval.core import threads
from loadeval.core import recorder
recorder.FLUSH_INTERVAL_S = 0.002
seen = set()
class Cycle:
    "Garbage with an open epoch in it, and an end that fails."
    def __init__(self):
        self.itself = self
        if MODE:
            log = f"{{id(self)}}.jsonl"
            self.loader = LoaderEvaluator(Loader(), probes=(), log_file=log, overwrite=True)
            self.epoch = iter(self.loader)
            next(self.epoch), next(self.epoch)
    def __del__(self):
        seen.add(threading.current_thread().name)
        raise ValueError("in __del__")
from loadeval.probes import Probe
class Collecting(Probe):
    name = "probe"
    def close(self): collect()
    def read(self):
        collect()
        return {{}}
def collect():
    gc.collect()
    with gate:
        garbage.pop() if garbage else None
    gc.collect()
gate = threading.Lock()
gc.freeze()  # what lives need not be looked at each time
garbage = [Cycle() for _ in range(4)]
gc.disable()
if MODE:
    from loadeval.core.threads import LogQueue
    write = LogQueue.write
    def collecting(self, patience_s=0.0):
        if threading.current_thread() is not threading.main_thread():
            collect()
        return write(self, patience_s)
    LogQueue.write = collecting
sys.unraisablehook = lambda _: None
loader = measured(Loader(30), probes=[Collecting()], probe_interval_s=0.005)
print(len(epoch(loader)), len(epoch(loader)))
if MODE:
    loader.close()
    assert any("loadeval" in name for name in seen), seen
    ours = [one.name for one in threading.enumerate() if one.name.startswith("loadeval")]
    assert not ours, ours
"""


@pytest.mark.parametrize("mode", MODES)
def test_garbage_is_collected_on_threads_of_ours(zygote: Zygote, tmp_path: Path, mode: str) -> None:
    """Open epochs and whole runs end there, and what fails there is the program's."""
    ended = zygote.check(GARBAGE.replace("{{", "{").replace("}}", "}"), tmp_path, mode)
    assert read_run(ended.folder / "run.jsonl").closed

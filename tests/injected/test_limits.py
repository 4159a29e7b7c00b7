"""Limits of the system: files, memory, threads, shared memory, /proc, disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loadeval import read_run
from tests.injected.launching import launch, program
from tests.injected.zygote import MODES, PREAMBLE, Zygote
from tests.launch.conftest import ROOT

LIMITED = """
import resource
def refused(*_):
    "As the system does, of a user who has too many."
    raise RuntimeError("can't start new thread")
loader = measured(Loader())
{late}
print(len(epoch(loader)), len(epoch(loader)))
"""
LIMITS = {
    "no more files": "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 64))",
    "no more threads": "threading._start_new_thread = refused",
    "no more memory": (
        "size = int(open('/proc/self/statm').read().split()[0]) * 4096;"
        "resource.setrlimit(resource.RLIMIT_AS, (size + 2**20, size + 2**20))"
    ),
    "a file of 3000 bytes": "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_limit_that_is_reached_in_training(
    zygote: Zygote, tmp_path: Path, limit: str, mode: str
) -> None:
    """One warning at most, and what is in the log reads."""
    code = LIMITED.format(late=limit)
    ended = zygote.check(code, tmp_path, mode, most_warnings=1)
    assert "Traceback" not in ended.err
    read_run(ended.folder / "run.jsonl")


TORCH = """
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, number):
        return torch.full((65536,), float(number))
torch.set_num_threads(1)
for MODE in (None, "log", "alternate", "replay"):
    loader = measured(DataLoader(Data(), 4, num_workers=2), log_file=f"{MODE}.jsonl")
    seen = []
    for _ in range(2):
        for batch in loader:
            seen += batch[:, 0].tolist()
            time.sleep(0.001)
    assert len(seen) == 192
    assert MODE == "replay" or sorted(seen) == sorted(2 * list(map(float, range(96))))
    print(MODE)
"""
PLAIN = """
print(len(epoch(measured(Loader(), probe_interval_s=0.01))))
"""


def in_namespace(mount: str) -> list[str]:
    """A shell that runs a command where something else is mounted; skips where none may do so."""
    for unshare in (["unshare", "-m"], ["unshare", "-Urm"]):
        tried = [*unshare, "sh", "-c", mount]
        if shutil.which("unshare") and not subprocess.run(tried, check=False).returncode:
            return [*unshare, "sh", "-c", f'{mount} && cd "$PWD" && exec "$@"', "sh"]
    pytest.skip("nothing can be mounted here")


def printed(shell: list[str], folder: Path, code: str, mode: str | None) -> str:
    """What a program prints there, that has to end well."""
    folder.mkdir(exist_ok=True)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    done = subprocess.run(
        [*shell, sys.executable, "-c", PREAMBLE.format(mode=mode) + code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "LoadevalWarning" not in done.stderr
    return done.stdout


@pytest.mark.check
@pytest.mark.parametrize("mode", MODES)
def test_a_proc_that_cannot_be_read(tmp_path: Path, mode: str) -> None:
    shell = in_namespace("mount -t tmpfs none /proc")
    assert printed(shell, tmp_path / mode, PLAIN, mode) == "40\n"
    run = read_run(tmp_path / mode / "run.jsonl")
    assert (run.closed, run.batches) == (True, 40)
    assert run.header.environment["memory_bytes"] is None
    missing = run.missing.get(("host", ""), "/proc cannot be read")
    assert missing.endswith("/proc cannot be read")


@pytest.mark.check
def test_a_shared_memory_of_8_mb(tmp_path: Path) -> None:
    """Four batches of 1 MB are on their way in it, as without loadeval."""
    shell = in_namespace("mount -t tmpfs -o size=8m none /dev/shm")
    assert printed(shell, tmp_path / "work", TORCH, None) == "None\nlog\nalternate\nreplay\n"
    for mode in ("log", "alternate", "replay"):
        assert read_run(tmp_path / "work" / f"{mode}.jsonl").batches == 48


@pytest.mark.check
@pytest.mark.parametrize("mode", MODES)
def test_a_disk_of_20_kb(tmp_path: Path, mode: str) -> None:
    """The run goes on in memory; the log reads up to there."""
    (tmp_path / mode).mkdir()
    code = """
with warnings.catch_warnings(record=True) as said:
    loader = measured(Loader(400, 0))
    print(sum(len(epoch(loader, 0.0001)) for _ in range(10)))
    if MODE:
        print(loader.recorded().batches)
        loader.close()
        from loadeval import read_run
        print(read_run("run.jsonl").batches < 4000)
print([one.category.__name__ for one in said])
"""
    shell = in_namespace(f"mount -t tmpfs -o size=20k none {tmp_path / mode}")
    output = printed(shell, tmp_path / mode, code, mode)
    assert output == "4000\n4000\nTrue\n['LoadevalWarning']\n"


STALL = "open(os.environ['STALLED'], 'w').close(); began = time.monotonic()"
TIMED = """
import threading
from ours_loaders import Loader
longest_s, seen = 0.0, 0
before = time.monotonic()
for epoch in range(9):
    for batch in Loader(200):
        now = time.monotonic()
        longest_s, before = max(longest_s, now - before), now
        seen += 1
        time.sleep(0.007)
        if seen == 200:
            {stall}
            threading.Timer({stall_s}, os.remove, [os.environ["STALLED"]]).start()
assert now - began > {stall_s}, now - began
assert longest_s < 2, longest_s
print(seen)
"""


@pytest.fixture(scope="module")
def stalling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library by which a file system stalls."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("stalling") / "stalling.so"
    source = ROOT / "tests" / "injected" / "stalling.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def variables(stalling: Path, folder: Path) -> dict[str, str | None]:
    return {
        "LD_PRELOAD": str(stalling),
        "STALLING": str(folder / "logs"),
        "STALLED": str(folder / "stalled"),
    }


@pytest.mark.check
@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_a_file_system_that_stalls_for_ten_seconds(
    tmp_path: Path, stalling: Path, mode: str
) -> None:
    """No iteration takes two, the pauses of alternating included; nothing is missing later."""
    program(tmp_path)
    (tmp_path / "program.py").write_text("import os, time" + TIMED.format(stall=STALL, stall_s=10))
    command = [sys.executable, str(tmp_path / "program.py")]
    chosen = variables(stalling, tmp_path)
    done = launch(tmp_path, command, "--mode", mode, variables=chosen)
    assert (done.code, done.out, done.warnings) == (0, "1800\n", []), done.err
    run = done.run()
    assert (run.closed, run.batches) == (True, 1800)


@pytest.mark.check
@pytest.mark.parametrize("mode", ["log", "alternate"])
def test_a_program_that_ends_while_its_file_system_stalls(
    tmp_path: Path, stalling: Path, mode: str
) -> None:
    """It ends some seconds later, with its own exit code."""
    program(tmp_path, within=STALL, after="sys.stdout.write(f'{time.monotonic() - began:.0f}\\n')")
    command = [sys.executable, str(tmp_path / "program.py")]
    chosen = variables(stalling, tmp_path)
    done = launch(tmp_path, command, "--mode", mode, variables=chosen)
    assert (done.code, done.out) == (5, "0\n60\n"), done.err
    assert len(done.warnings) == 1
    assert done.run().batches

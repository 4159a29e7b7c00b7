"""Where and how `loadeval run` starts a program: its exit code and output are its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loadeval import read_run
from tests.injected.launching import Launched, launch, program

pytestmark = pytest.mark.check  # each starts Python once or twice

PYTHON = sys.executable
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
REMOVED = "import shutil; shutil.rmtree(os.environ['LOADEVAL_RUN'])"
WORK_REMOVED = "import shutil; shutil.rmtree(os.getcwd())"
DAMAGED = (
    "[open(path, 'w').write('no log') for path in __import__('pathlib')"
    ".Path(os.environ['LOADEVAL_RUN']).glob('*.json*')]"
)


def command(folder: Path, *options: str) -> list[str]:
    return [PYTHON, *options, str(folder / "program.py")]


def check(done: Launched, most_warnings: int = 0) -> Launched:
    """The program ended as it does by itself."""
    assert (done.code, done.out) == (5, "60\n"), done.err
    assert "Traceback" not in done.err
    assert len(done.warnings) <= most_warnings, done.err
    return done


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({}, "Training waited for batches"),
        ({"within": REMOVED}, "it was removed"),
        ({"before": "loop = iter(Loader()); next(loop); " + REMOVED}, "not measured (RunLogError"),
        ({"after": REMOVED}, "there is no report: FileNotFoundError"),
        ({"within": DAMAGED}, "cannot be written any more"),
    ],
    ids=str,
)
def test_what_happens_to_the_logs(tmp_path: Path, faults: dict[str, str], said: str) -> None:
    program(tmp_path, **faults)
    done = check(launch(tmp_path, command(tmp_path)), most_warnings=1)
    assert said in done.err


@pytest.mark.parametrize("when", ["before", "within"])
def test_a_disk_that_is_full(tmp_path: Path, when: str) -> None:
    program(tmp_path, **{when: FULL})
    assert "File too large" in check(launch(tmp_path, command(tmp_path)), 1).err


def test_a_working_folder_that_is_gone_before_it_starts(tmp_path: Path) -> None:
    """The logs are in the system's folder for temporary files then; which is said."""
    program(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = launch(
        tmp_path,
        command(tmp_path),
        around="mkdir gone && cd gone && rmdir ../gone && {}",
        variables={"TMPDIR": str(temporary)},
        default_folder=True,
    )
    check(done)
    (log,) = temporary.glob("loadeval-runs-*/program-*/rank0.jsonl")
    assert read_run(log).batches == 60
    assert f"loadeval: logs in {log.parent};" in done.err


@pytest.mark.parametrize("default_folder", [True, False])
def test_a_working_folder_that_is_removed(tmp_path: Path, default_folder: bool) -> None:
    """While the program runs, and the logs with it where they are by default."""
    program(tmp_path, within=WORK_REMOVED)
    done = launch(tmp_path, command(tmp_path), default_folder=default_folder)
    check(done, most_warnings=1)
    assert not (tmp_path / "work").exists()
    assert default_folder or done.run().batches == 60


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_files(tmp_path: Path, closed: str) -> None:
    program(tmp_path, after="print = lambda seen: sys.stdout and sys.stdout.write(f'{seen}\\n')")
    done = launch(tmp_path, command(tmp_path), around="{} " + closed)
    assert done.code == 5
    assert done.out == ("" if ">&-" in closed.split() else "60\n")
    assert done.run().closed


@pytest.mark.parametrize("options", [("-X", "dev"), ("-W", "error")])
def test_options_of_python(tmp_path: Path, options: tuple[str, ...]) -> None:
    program(tmp_path)
    done = check(launch(tmp_path, command(tmp_path, *options)))
    assert done.run().batches == 60
    assert "Warning" not in done.err


@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "COLUMNS": "1"},
        {"HOME": "/no/such/folder", "TMPDIR": "/no/such/folder", "PYTHONSAFEPATH": "1"},
    ],
    ids=str,
)
def test_variables(tmp_path: Path, variables: dict[str, str | None]) -> None:
    """The name of the folder is not in ASCII."""
    folder = tmp_path / "exp\u00e9rience \u5b66\u7fd2"
    folder.mkdir()
    program(folder)
    assert check(launch(folder, command(folder), variables=variables)).run().batches == 60


@pytest.mark.parametrize(
    "own", ["open('seen', 'a').write(f'{__name__} {__file__}\\n')", "raise ValueError('mine')"]
)
def test_a_sitecustomize_of_the_users_own(tmp_path: Path, own: str) -> None:
    """It runs as without ours, which hides it, and fails as it does."""
    program(tmp_path)
    (tmp_path / "library" / "sitecustomize.py").write_text(own)
    plain, done = (launch(tmp_path, command(tmp_path), bare=bare) for bare in (True, False))
    assert (done.code, done.out) == (plain.code, plain.out) == (5, "60\n")
    assert (
        plain.err.splitlines()[:1]
        == [line for line in done.err.splitlines() if line in plain.err.splitlines()[:1]][:1]
    )
    assert done.run().batches == 60
    if not plain.err:
        seen = (tmp_path / "work" / "seen").read_text().splitlines()
        assert seen == 3 * [f"sitecustomize {tmp_path / 'library' / 'sitecustomize.py'}"]


@pytest.mark.parametrize("own", ["", ":$PYTHONPATH"])
def test_a_pythonpath_of_the_commands_own(tmp_path: Path, own: str) -> None:
    """It keeps loadeval out in place of ours, which is said, with what to write."""
    program(tmp_path)
    paths = f"{tmp_path / 'library'}{':'.join(['', *filter(None, sys.path)])}{own}"
    shell = ["sh", "-c", f"PYTHONPATH='{paths}' exec {PYTHON} ../program.py".replace("$", "'$'")]
    shell[-1] = shell[-1].replace("'$'PYTHONPATH'", '\'"$PYTHONPATH"')
    done = check(launch(tmp_path, shell))
    said = " ".join(done.err.split())
    assert ("write PYTHONPATH=.:$PYTHONPATH" in said) is (not own)
    assert (tmp_path / "logs" / "rank0.jsonl").exists() is bool(own)

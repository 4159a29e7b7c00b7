"""What users and adapters build on: names with their signatures, help, exit codes.

It is compared with tests/golden/api.txt, which `make golden` writes.
"""

from __future__ import annotations

import ast
import inspect
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import loadeval
from loadeval import testing
from loadeval.cli.main import COMMANDS
from tests.cli.commands import runner
from tests.recordings import laid_out
from tests.whole_outputs import trimmed

WIDEST = 90
"""A longer signature has a line for each parameter."""
ADAPTERS = Path(__file__).parents[1] / "adapters" / "loadeval_adapters"
EXIT_CODES = (
    "--version",
    "compare blur.jsonl",
    "compare blur.jsonl --fail-above 5",
    "compare blur.jsonl --fail-above 45",
    "compare blur.jsonl --fail-above 90",
    "compare blur.jsonl copy.jsonl --fail-slower 5",
    "compare nowhere.jsonl",
    "compare",
    "compare blur.jsonl --fail-above 101",
    "report blur.jsonl",
    "report blur.jsonl --output blur.jsonl.html",
    "report blur.jsonl --output page.txt",
    "whatif blur.jsonl --num-workers 4",
    "whatif blur.jsonl --num-workers -1",
    "export blur.jsonl --format csv",
    "export blur.jsonl --format csv",
    "watch blur.jsonl --once",
    "watch blur.jsonl --json",
    "nothing",
    "compare blur.jsonl --ful",
    "compare empty",
    "compare notes.txt",
    "compare old.jsonl",
    "compare rank0.jsonl rank1.jsonl blur.jsonl",
    "compare blur.jsonl --between 120s 60s",
    "compare log.jsonl --fail-above 5",
    "compare blur.jsonl --output none/figure.png",
    "whatif log.jsonl",
    "doctor empty",
    "watch nowhere.jsonl",
    "watch old.jsonl",
    "run -- pyhton train.py",
    "run --set num_wrkers=2 -- true",
    "run --mode replay -- true",
    "run --output blur.jsonl -- true",
    "diagnose",
    "diagnose --output blur.jsonl/logs -- true",
    "tune train.py",
    "tune train:main",
    "tune --space num_workers -- true",
    "attach 4194305",
    "backends empty",
    "backends nowhere",
    "backends blur.jsonl",
    "export blur.jsonl --format json",
    "demo --after --output empty",
)
"""Commands, one after the other, in a folder with the files of `exit_codes`."""


def test_api(
    golden: Callable[[str, Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    golden("api.txt", trimmed("\n".join((*names(), *imports(), *helps(), *exit_codes(tmp_path)))))


def names() -> Iterator[str]:
    """Each public name, with what can be called or read of it."""
    of_testing = [
        name
        for name, value in vars(testing).items()
        if getattr(value, "__module__", "") == testing.__name__
    ]
    for module, of_module in ((loadeval, loadeval.__all__), (testing, of_testing)):
        yield f"{module.__name__}"
        for name in sorted(of_module):
            yield from described(f"  {name}", getattr(module, name))
        yield ""


def described(name: str, value: Any) -> Iterator[str]:
    """A function, or a class with its own public members."""
    if not inspect.isclass(value):
        yield f"{name}{signature(value)}"
        return
    base = value.__base__ or object
    yield name if base is object else f"{name}: {base.__name__}"
    if not issubclass(value, Exception):
        yield f"    {signature(value)}"
    members = {
        member: inspect.getattr_static(value, member)
        for kind in reversed(value.__mro__)
        if kind.__module__.startswith("loadeval")
        for member in vars(kind)
    }
    if "__getattr__" in members:  # attributes that are looked up by their names
        members |= vars(value)["__annotations__"]
    for member, what in sorted(members.items()):
        if member.startswith("_"):
            continue
        if isinstance(what, str):
            yield f"    {member}: {what}"
        elif isinstance(what, property):
            yield f"    {member}: {getattr(what.fget, '__annotations__', {}).get('return')}"
        elif callable(getattr(value, member)):
            yield f"    {member}{signature(getattr(value, member))}"


def signature(function: Any) -> str:
    """With annotations as they are written."""
    found = inspect.signature(function)
    shown: list[str] = []
    for parameter in found.parameters.values():
        text = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        if parameter.annotation is not parameter.empty:
            text += f": {annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in "".join(shown):
            shown.append("*")
        shown.append(text)
    returned = "" if found.return_annotation is found.empty else found.return_annotation
    after = f" -> {annotation(returned)}" if returned != "" else ""
    line = f"({', '.join(shown)}){after}"
    if len(line) <= WIDEST:
        return line
    lines = "".join(f"        {parameter},\n" for parameter in shown)
    return f"(\n{lines}    ){after}"


def annotation(given: Any) -> str:
    return given if isinstance(given, str) else inspect.formatannotation(given)


def imports() -> Iterator[str]:
    """What the adapters of the package take from loadeval."""
    taken: dict[str, set[str]] = {}
    for path in sorted(ADAPTERS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "loadeval":
                taken.setdefault(str(node.module), set()).update(each.name for each in node.names)
    for module, of_module in sorted(taken.items()):
        yield f"adapters import of {module}"
        yield from (f"  {name}" for name in sorted(of_module))
        yield ""


def helps() -> Iterator[str]:
    """The help of the command and of each of its commands, in 80 columns."""
    for command in ([], *([name] for name in sorted(COMMANDS))):
        _, out, _ = runner(*command)("--help")
        yield f"$ {shlex.join(['loadeval', *command, '--help'])}"
        yield out.replace("Usage: root", "Usage: loadeval")


def exit_codes(folder: Path) -> Iterator[str]:
    """The exit code of each of EXIT_CODES, and the last line that it says on stderr: the error."""
    for recording, name in (("log-zero-workers", "log"), ("before-blur", "blur")):
        (log,) = laid_out(recording, folder)
        Path(log).rename(f"{name}.jsonl")
    text, place = Path("blur.jsonl").read_text("utf-8"), '"environment":{'
    for name, before, now in (
        ("copy", "", ""),
        ("old", '"version":1', '"version":7'),
        ("rank0", place, f'{place}"rank":0,"world_size":2,'),
        ("rank1", place, f'{place}"rank":1,"world_size":2,'),
    ):
        Path(f"{name}.jsonl").write_text(text.replace(before, now, 1), "utf-8")
    Path("notes.txt").write_text("hello\n")
    Path("empty").mkdir()
    for command in EXIT_CODES:
        code, _, err = runner()(*shlex.split(command))
        yield f"$ loadeval {command}"
        yield from (f"  exit code {code}", *(f"  {line}" for line in err.splitlines()[-1:]))

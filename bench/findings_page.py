"""Write the rules into docs/findings.md: `python -m bench.findings_page`.

What a rule finds, shows by and is excluded by is its docstring, and what it says an example from
the recorded runs.
"""

import inspect
import re
import tempfile
from importlib import import_module
from itertools import groupby
from pathlib import Path

from loadeval import RunLogError, read_run
from loadeval.data.run import Run
from loadeval.findings.engine import RULES, Ask, Finding, diagnose
from tests.recordings import RECORDED, TOGETHER, laid_out

PAGE = Path(__file__).parent.parent / "docs" / "findings.md"
BEGIN, END = "<!-- The rules: python -m bench.findings_page -->\n", "<!-- End of the rules -->\n"
REDACTED = re.compile(r"(path|data)-[0-9a-f]{8,}")
"""How a path of the user's is named in a log without them."""

STAND_IN = " (stand-in for a CUDA device)"
"""Behind the name of each GPU of the recorded runs, none of which had a real one."""


def examples() -> dict[str, Finding]:
    """A finding of each rule: of the recorded run with its name, or else of the first run."""
    found: dict[str, Finding] = {}
    for name in RECORDED:
        if name in TOGETHER or name.startswith("before-"):
            continue
        for told in (diagnose(*runs) for runs in runs_of(name)):
            for each in told.findings:
                if each.rule not in found or each.rule.replace(" ", "-") == name:
                    found[each.rule] = each
    return found


def runs_of(name: str) -> list[tuple[Run, Run | None]]:
    """The runs of a recording, each with the one that replayed; none where it cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        laid_out(name, Path(folder))
        try:
            runs = {log.stem: read_run(log) for log in sorted(Path(folder).rglob("*.jsonl"))}
        except RunLogError:
            return []
    if runs.keys() == {"log", "replay"}:
        return [(runs["log"], runs["replay"])]
    return [(run, None) for run in runs.values()]


def rules() -> str:
    shown, parts = examples(), list[str]()
    for name, asks in groupby(RULES, lambda ask: ask.__module__):
        title = (import_module(name).__doc__ or "").strip().removesuffix(".")
        parts.append(f"### {title}\n")
        parts += [_rule(ask, shown.get(RULES[ask].name)) for ask in asks]
    return "\n".join(parts)


def _rule(ask: Ask, example: Finding | None) -> str:
    what, *why = re.split(r"\n+(?=Shown by|Excluded by)", inspect.getdoc(ask) or "")
    lines = [f"#### {RULES[ask].name}\n", f"{_one_line(what)}\n"]
    lines += ["- " + re.sub("^(Shown|Excluded) by", r"**\1 by**", _one_line(each)) for each in why]
    if example is not None:
        of_what = " of a simulated GPU" * ask.__module__.endswith(".gpu")
        lines.append(f"- **Says**, for example{of_what}: {_plain(example.says)}")
        advice = [f"{do.says}{f' ({do.because})' * bool(do.because)}" for do in example.do]
        lines += [f"- **To do**: {_plain('; '.join(advice))}."] if advice else []
    return "\n".join([*lines, f"- **Source**: {RULES[ask].source}.", ""])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """The text with a name for files that have none, and nothing that Markdown would make more."""
    text = REDACTED.sub("data.py", text).replace("<", "&lt;").replace(STAND_IN, "")
    return re.sub(r"(?<![`\w])(_+\w+)", r"\\\1", text)


def page(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{rules()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

"""Reads files that were mutated, and gives those that can be read to the commands.

Prints what became of them. What is no error of loadeval's, too slow, too large, or does not name
its line is printed with how to do it again, and ends this with exit status 1.
"""

import gzip
import json
import os
import random
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from bench.tables import parser_of

# In this process: one for each of 100,000 files would take a day.
from loadeval.cli.main import app
from loadeval.data.log import read_run
from loadeval.errors import LoadevalError

RECORDED = Path(__file__).parents[2] / "tests" / "recorded"
LOGS = (
    *("log-zero-workers", "slow-transform", "slow-operator", "padding", "process-memory"),
    *("hidden-waits", "python-lock", "log-and-replay/log", "log-and-replay/replay"),
    *("ranks/rank0", "ranks/rank1", "ranks/rank2"),
)
PROCESS = "rank0.json"
OF_PROCESS = b"""{"name":"rank0","rank":0,"pid":7,"host":"node0","ended":true,"loaders":[{"log":\
"rank0.jsonl","role":"training","mode":"log","loader":"a.Loader","dataset":"Photographs",\
"has_gradients":true,"epochs":2,"optimizer_steps":14}]}"""
OF_DALI = b"""{"mode":"log","total_batches":4,"total_time":1.0,"avg_batch_time":0.075,\
"min_batch_time":0.0,"max_batch_time":0.1,"batch_times":[0.1,0.1,0.0,0.1],"cached_batches":2,\
"cache_ready":false}"""
MANY = 6
"""So many lines of a kind are enough."""
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("compare",),
    ("compare", "--full"),
    ("compare", "--json"),
    ("compare", "--output", "figure.svg"),
    ("compare", "--fail-above", "20"),
    ("report", "--output", "page.html"),
    ("whatif", "--num-workers", "4"),
    ("whatif", "--batch-size", "8", "--cpus", "1.5", "--prefetch-factor", "1", "--json"),
    ("whatif", "--out-of-order", "--faster", "GaussianBlur=2", "--output", "figure.svg"),
    ("watch", "--once", "--json"),
    ("export", "--format", "chrome", "--output", "exported"),
    ("export", "--format", "csv", "--output", "exported"),
)
SLOWEST_S_PER_MB = 5.0
MOST_MB = 300
AT_ONCE = 250
"""Inputs of a process, which then ends: what libraries keep is not ours."""
NAMES_THE_PLACE = re.compile(r", line 1 | is no run log: | is neither a run log |^cannot read ")

NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
LIST = re.compile(rb"\[[^\[\]{}]*\]")
VALUE = re.compile(rb'(?<=":)(?:"(?:[^"\\]|\\.)*"|\[[^\[\]{}]*\]|\{[^\[\]{}]*\}|[-\w.]+)')
PIECES = (
    NUMBER,
    LIST,
    VALUE,
    re.compile(rb'"(?:[^"\\]|\\.)*"(?!:)'),  # a string
    re.compile(rb'"(?:[^"\\]|\\.)*"(?=:)'),  # a key
    re.compile(rb'"\w+":(?:"(?:[^"\\]|\\.)*"|\[[^\[\]{}]*\]|[-\w.]+),'),  # a field
)
HOSTILE = (
    "</script><script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "'\" onmouseover=window.owned=1 x='",
    "{{ 7*7 }}{% raw %} %{x} %s %(x)s {0} {x!r} $x^2$",
    "=cmd|' /C calc'!A0",
    "a\u202eb\u2066c\u2028d\u2029e\ufeff",
    "\x1b[2J\x1b]0;owned\x07\x9b31m\r\b",
    "../../../../etc/passwd",
    *("\x00", "\ud800", "", "nan", "x" * 10_000, "\U0001f600" * 50),
)
"""Text that wants to be more than text, on a page, in a terminal, in a sheet, or in a path."""
DEPTHS = (50, 500, 940, 960, 980, 1_000, 100_000)
"""Around a thousand Python parses what it cannot show any more."""
VALUES = (
    *(b"0", b"-1", b"0.5", b"1e12", b"1e19", b"1e308", b"1e999", b"-1e999", b"1" + 400 * b"0"),
    *(b"%d" % (2**power + more) for power in (31, 53, 62, 63, 64) for more in (-1, 0, 1)),
    *(b"NaN", b"Infinity", b"true", b"null", b"[]", b"[null]", b"[[]]", b"{}", b"", b"1 2"),
    *(b'"real"', b'"ideal"', b'"replay"', b'"block"', b'"host"', b'"0001-01-01T00:00:00"'),
    *(json.dumps(text).encode("utf-8", "surrogatepass") for text in HOSTILE),
    *(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass") for text in HOSTILE),
    *(b"[" * depth + b"]" * depth for depth in DEPTHS),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in DEPTHS),
)
BYTES = (
    b"",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xc3(",
    b"\n",
    b"\r",
    b'"',
    b"{",
    b"\\",
    b",",
)


@cache
def seeds() -> dict[str, bytes]:
    """The files that are mutated, by their names: without most lines of which a run has many."""
    found = {PROCESS: OF_PROCESS, "dali.json": OF_DALI}
    for name in LOGS:
        seen: Counter[bytes] = Counter()
        kept = []
        packed = (RECORDED / f"{name}.jsonl.gz").read_bytes()
        for line in gzip.decompress(packed).splitlines(keepends=True):
            kind = line.split(b'"', 4)[3]
            seen[kind] += 1
            if seen[kind] <= MANY * (10 if kind == b"block" else 1):
                kept.append(line)
        found[f"{Path(name).name}.jsonl"] = b"".join(kept)
    return found


def mutated(content: bytes, draw: random.Random) -> bytes:
    """`content` with some changes, one most often."""
    for _ in range(1 + min(int(draw.expovariate(0.9)), 3)):
        content = draw.choice((with_value, with_value, with_value, with_bytes, with_lines))(
            content, draw
        )
    return content


def with_value(content: bytes, draw: random.Random) -> bytes:
    """A number, string, key, list or field becomes something else, once or wherever it stands."""
    matches = list(draw.choice(PIECES).finditer(content))
    if not matches:
        return content
    match = draw.choice(matches)
    old, how = match[0], draw.randrange(6)
    new = draw.choice(VALUES)
    if how == 0:  # of a whole list, by a power of ten: valid, and odd
        new = NUMBER.sub(lambda number: number[0] + b"0" * draw.randrange(14), old)
    elif how == 1:
        new = draw.choice(VALUE.findall(content) or [b""])
    elif how == 2:
        new = old + b"," + old
    elif how == 3:
        return content.replace(old, new)
    return content[: match.start()] + new + content[match.end() :]


def with_bytes(content: bytes, draw: random.Random) -> bytes:
    """Bytes are put in or left out, the end is missing, or all is recoded."""
    at, how = draw.randrange(len(content) + 1), draw.randrange(4)
    if how == 0:
        return content[:at]
    if how == 1:
        encoding = draw.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7"))
        return content.decode("utf-8", "replace").encode(encoding, "replace")
    return content[:at] + draw.choice(BYTES) + content[at + draw.choice((0, 0, 1, 20, 200)) :]


def with_lines(content: bytes, draw: random.Random) -> bytes:
    """Some lines are left out, are there again, or stand elsewhere."""
    lines = content.splitlines(keepends=True) or [b""]
    at, how = draw.randrange(len(lines)), draw.randrange(3)
    taken = lines[at : at + draw.randrange(1, 5)]
    if how == 0:
        lines[at : at + len(taken)] = []
    elif how == 1:
        lines[at:at] = taken * draw.choice((1, 2, 40))
    else:
        lines.insert(draw.randrange(len(lines)), lines.pop(at))
    return b"".join(lines)


def read(path: Path) -> str:
    """Whether it is "read" or "refused", in an error that says what is wrong, and soon."""
    began_s, outcome = time.process_time(), "read"
    try:
        read_run(path)
    except LoadevalError as error:
        said, outcome = str(error), "refused"
        assert NAMES_THE_PLACE.search(said), said
        assert len(said) < 1_000 + len(str(path)), said
    took_s = time.process_time() - began_s
    assert took_s < SLOWEST_S_PER_MB * max(path.stat().st_size / 1e6, 1.0), f"{took_s:.1f} s"
    return outcome


def read_one(draw: random.Random, folder: Path) -> str:
    name = draw.choice([name for name in seeds() if name != PROCESS])
    path = folder / name
    path.write_bytes(mutated(seeds()[name], draw))
    return read(path)


def files(draw: random.Random, folder: Path, command: str) -> list[Path]:
    """What a command gets: a file that can be read, two, or the folder of a job; mutated."""
    if command in {"compare", "report", "watch"} and not draw.randrange(5):
        for each in (PROCESS, *(f"rank{rank}.jsonl" for rank in range(3))):
            is_changed = draw.randrange(2)
            content = mutated(seeds()[each], draw) if is_changed else seeds()[each]
            if each != PROCESS or draw.randrange(2):
                (folder / each).write_bytes(content)
        return [folder]
    name = draw.choice([each for each in seeds() if each != PROCESS])
    paths = [folder / name]
    paths[0].write_bytes(mutated(seeds()[name], draw))
    while read(paths[0]) == "refused":  # it says nothing of what comes after it
        paths[0].write_bytes(mutated(seeds()[name], draw))
    if command in {"compare", "report"} and not draw.randrange(5):
        paths.append(folder / "second.jsonl")
        paths[1].write_bytes(seeds()[draw.choice(("replay.jsonl", "slow-transform.jsonl"))])
    return paths


def give_one(draw: random.Random, folder: Path) -> str:
    name, *options = draw.choice(COMMANDS)
    given = folder / "given"
    given.mkdir()
    paths = files(draw, given, name)
    if "--output" in options:
        options[-1] = str(folder / options[-1])
    done = CliRunner().invoke(app, [name, *options, *map(str, paths)], catch_exceptions=False)
    said = {0: "", 1: "Error: .*\n", 2: "(?s:Usage: .*)", 3: ".*\n", 4: ".*\n"}[done.exit_code]
    assert re.fullmatch(said, done.stderr), done.stderr
    steering = {char for char in done.output if char != "\n" and not char.isprintable()}
    assert not steering, steering
    if "--json" in options and not done.exit_code:
        json.loads(done.stdout, parse_constant=lambda constant: 1 / (constant == "JSON"))
    if options[-1:] == [str(folder / "page.html")] and not done.exit_code:
        Page().feed((folder / "page.html").read_text(encoding="utf-8"))
    return "refused" if done.stderr else "done"


class Page(HTMLParser):
    """Objects to what runs or loads, beside the one script of a page, which sorts and folds."""

    scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        assert self.scripts <= 1
        assert tag not in {"img", "iframe", "object", "embed", "link", "form", "base"}, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name in {"href", "src", "action"}:
                assert (value or "").startswith("#"), value


WORK: dict[str, Callable[[random.Random, Path], str]] = {"read": read_one, "give": give_one}


def some(places: list[str]) -> tuple[Counter[str], dict[str, str], float]:
    """What became of the inputs that are named, what went wrong by where it did, and megabytes."""
    warnings.simplefilter("error")  # NumPy's too: a user would see them
    outcomes: Counter[str] = Counter()
    wrong = {}
    for place in places:
        with TemporaryDirectory() as folder:
            try:
                outcomes[WORK[place.split()[0]](random.Random(place), Path(folder))] += 1
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                *_, last = traceback.extract_tb(error.__traceback__)
                where = f"{type(error).__name__} at {last.filename}:{last.lineno}"
                wrong[where] = f"--again {place!r}\n{traceback.format_exc(limit=-6)}"
    # `ru_maxrss` counts what the parent had too.
    (peak_kb,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return outcomes, wrong, int(peak_kb) / 1024


def went_well(work: str, count: int, seed: int) -> bool:
    """Whether nothing was wrong with so many inputs; prints what became of them."""
    places = [f"{work} {seed} {number}" for number in range(count)]
    parts = [places[at : at + AT_ONCE] for at in range(0, count, AT_ONCE)]
    outcomes: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    most_mb, cpus = 0.0, os.cpu_count() or 1
    for at in range(0, len(parts), cpus):
        with ProcessPoolExecutor(cpus) as pool:  # a process that is killed ends it: no hang
            for became, failed, peak_mb in pool.map(some, parts[at : at + cpus]):
                outcomes.update(became)
                wrong.update(failed)
                most_mb = max(most_mb, peak_mb)
    print(f"{work}: {dict(outcomes)}; memory at most {most_mb:.0f} MB", flush=True)
    for where, how in wrong.items():
        print(f"\nwrong: {where}\n{how}")
    return not wrong and most_mb < MOST_MB


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--commands", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", help="one input that was wrong")
    options = parser.parse_args()
    if options.again is not None:
        _, wrong, _ = some([options.again])
        print(*wrong.values())
        return int(bool(wrong))
    counts = {"read": options.inputs, "give": options.commands}
    good = [went_well(work, count, options.seed) for work, count in counts.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

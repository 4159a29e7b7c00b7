"""What is done to a file: bytes, lines, and what JSON is made of, changed at some place.

A mutation is data: its name, where it is made, as a share of the places there are, and a number
that chooses what is put there.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    Change = Callable[[bytes, float, int], bytes]

NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"(?!:)')
KEY = re.compile(rb'"(?:[^"\\]|\\.)*":')
LIST = re.compile(rb"\[[^\[\]{}]*\]")
VALUE = re.compile(rb'(?<=":)(?:"(?:[^"\\]|\\.)*"|\[[^\[\]{}]*\]|\{[^\[\]{}]*\}|[-\w.]+)')
TYPE = re.compile(rb'(?<="type":")\w+')
FIELD = re.compile(rb'"\w+":(?:"(?:[^"\\]|\\.)*"|\[[^\[\]{}]*\]|[-\w.]+),')
CHOICES = 1 << 16

NUMBERS = (
    *(b"0", b"-0", b"1", b"-1", b"2", b"3", b"255", b"1e3", b"0.5", b"-0.0", b"1.0", b"1e-320"),
    *(b"1000000000000", b"1e12", b"999999999999999999", b"1000000000000000000"),
    *(b"%d" % (2**power + more) for power in (31, 53, 61, 62, 63, 64) for more in (-1, 0, 1)),
    *(b"1e18", b"1e19", b"1e308", b"1.8e308", b"-1e308", b"1e999", b"-1e999", b"1" + 400 * b"0"),
    *(b"NaN", b"Infinity", b"-Infinity", b"true", b"false", b"null", b'"1"', b'""', b"[]", b"[1]"),
    *(b"{}", b"1" * 5_000, b"01", b"+1", b".5", b"1.", b"0x10", b"1_000", b"1 2"),
)
HOSTILE = (
    "<script>window.owned=1</script>",
    "</script><script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "javascript:window.owned=1",
    "'\" onmouseover=window.owned=1 x='",
    "{{ 7*7 }}{% raw %} %{x} %s %(x)s {0} {x!r} $x^2$",
    "=cmd|' /C calc'!A0",
    "a\u202eb\u2066c\u2028d\u2029e\ufeff",
    "\x1b[2J\x1b]0;owned\x07\x9b31m\r\b",
    "../../../../etc/passwd",
    "\x00",
    "\ud800",
    "",
    " ",
    "nan",
    "x" * 10_000,
    "é" * 300,
    "\U0001f600" * 50,
)
"""Text that wants to be more than text, on a page, in a terminal, in a sheet, or in a path."""
TEXTS = (
    *(b"real", b"ideal", b"log", b"replay", b"alternate", b"exhausted", b"failed", b"broken off"),
    *(b"block", b"header", b"end", b"epoch", b"readings", b"stages"),
    *(b"host", b"gpu", b"threads", b"process", b"workers", b"python lock", b"training thread"),
    *(b"2026-11-21T10:00:00+00:00", b"2026-11-21", b"0001-01-01T00:00:00", b"9999-12-31T23:59:59"),
    *(b"2026-11-21T10:00:00+23:59", b"torch.utils.data.dataloader.DataLoader"),
    *(b"DistributedSampler", b"\\ud800", b"\\u0000", b"\\x", b"\\", b'\\"'),
)
BYTES = (
    *(b"\x00", b"\xef\xbb\xbf", b"\xff", b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\xe2\x80\xa8", b"\x0b", b"\x0c", b"\x85", b"\t", b" "),
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"//", b"#", b"/*", b"-", b"e", b"0", b"9"),
    *(b'{"type":"header"}\n', b'{"type":"end","batches":0}\n', b"{}\n", b"[]\n", b"null\n"),
)
LISTS = (b"[]", b"[null]", b"null", b"[0]", b"[1,2,3]", b"[[]]", b"[{}]", b'["a"]', b"{}", b"0")
TYPES = (b"block", b"header", b"epoch", b"readings", b"stages", b"window", b"", b"end", b"other")
OF_A_KEY = (b"null", b"0", b"[]", b"{}", b'""', b"1", b"4611686018427387903")


class Mutation(NamedTuple):
    """One change: `place` is from 0 up to 1, `choice` from 0 up to CHOICES."""

    name: str
    place: float
    choice: int


def mutated(content: bytes, mutations: list[Mutation]) -> bytes:
    """`content`, changed by each in turn."""
    for name, place, choice in mutations:
        content = MUTATIONS[name](content, place, choice)
    return content


def drawn(random: Random, most: int = 4) -> list[Mutation]:
    """Some mutations, one most often."""
    names = list(MUTATIONS)
    count = min(1 + int(random.expovariate(0.9)), most)
    return [
        Mutation(random.choice(names), random.random(), random.randrange(CHOICES))
        for _ in range(count)
    ]


def _text(_old: bytes, choice: int) -> bytes:
    """A string of JSON, with escapes only where they must be or wherever they can be."""
    texts = (*HOSTILE, *TEXTS)
    text = texts[choice % len(texts)]
    if isinstance(text, bytes):
        return b'"%s"' % text
    return json.dumps(text, ensure_ascii=choice % 2 == 0).encode("utf-8", "surrogatepass")


def _one_of(choices: tuple[bytes, ...]) -> Callable[[bytes, int], bytes]:
    return lambda _old, choice: choices[choice % len(choices)]


def _again(old: bytes, choice: int) -> bytes:
    """A key with another value, and then the key once more."""
    return old + NUMBERS[choice % len(NUMBERS)] + b"," + old


def _multiplied(old: bytes, choice: int) -> bytes:
    """Every number in a list, by a power of ten: valid, and odd."""
    return NUMBER.sub(lambda match: match[0] + b"0" * (choice % 14), old)


def _nested(_old: bytes, choice: int) -> bytes:
    depth = (50, 500, 900, 980, 1_000, 5_000, 100_000)[choice % 7]
    opening, closing = ((b"[", b"]"), (b'{"a":', b"}"))[choice % 2]
    return opening * depth + (b"1" if choice % 3 else b"") + closing * depth


def _replaced(pattern: re.Pattern[bytes], new: Callable[[bytes, int], bytes]) -> Change:
    """One match of the pattern becomes what `new` makes of it."""

    def changed(content: bytes, place: float, choice: int) -> bytes:
        matches = list(pattern.finditer(content))
        if not matches:
            return content
        match = matches[int(place * len(matches))]
        return content[: match.start()] + new(match[0], choice) + content[match.end() :]

    return changed


def _with_bytes(change: Callable[[bytes, bytes, int], bytes]) -> Change:
    """What stands before a byte, and what stands from there, become something else."""

    def changed(content: bytes, place: float, choice: int) -> bytes:
        at = int(place * (len(content) + 1))
        return change(content[:at], content[at:], choice)

    return changed


def _flipped(before: bytes, after: bytes, choice: int) -> bytes:
    return before + bytes(byte ^ (1 << choice % 8) for byte in after[:1]) + after[1:]


def _with_lines(change: Callable[[list[bytes], int, int], list[bytes]]) -> Change:
    def changed(content: bytes, place: float, choice: int) -> bytes:
        lines = content.splitlines(keepends=True)
        return b"".join(change(lines, int(place * len(lines)), choice)) if lines else content

    return changed


def _repeat(lines: list[bytes], at: int, choice: int) -> list[bytes]:
    return lines[:at] + [lines[at]] * (2, 2, 3, 40)[choice % 4] + lines[at + 1 :]


def _move(lines: list[bytes], at: int, choice: int) -> list[bytes]:
    line = lines.pop(at)
    lines.insert(choice % (len(lines) + 1), line)
    return lines


def _replace_same_numbers(content: bytes, place: float, choice: int) -> bytes:
    """All that are equal, so that what adds up may still do so."""
    numbers = NUMBER.findall(content)
    if not numbers:
        return content
    old, new = numbers[int(place * len(numbers))], NUMBERS[choice % len(NUMBERS)]
    return NUMBER.sub(lambda match: new if match[0] == old else match[0], content)


def _one_value_for_a_key(content: bytes, place: float, choice: int) -> bytes:
    keys = sorted(set(KEY.findall(content)))
    if not keys:
        return content
    key = re.escape(keys[int(place * len(keys))])
    new = OF_A_KEY[choice % len(OF_A_KEY)]
    return re.sub(rb"(?<=%s)(?:\"[^\"]*\"|\[[^\[\]{}]*\]|[-\w.]+)" % key, new, content)


def _swap_values(content: bytes, place: float, choice: int) -> bytes:
    values = tuple(VALUE.findall(content))
    return _replaced(VALUE, _one_of(values))(content, place, choice) if values else content


def _recode(content: bytes, _place: float, choice: int) -> bytes:
    text = content.decode("utf-8", "replace")
    return text.encode(("utf-16", "utf-32", "utf-8-sig", "utf-16-le", "utf-7")[choice % 5])


MUTATIONS: dict[str, Change] = {
    "flip bits": _with_bytes(_flipped),
    "put bytes": _with_bytes(lambda before, after, n: before + BYTES[n % len(BYTES)] + after),
    "put bytes first": _with_bytes(lambda before, after, n: BYTES[n % len(BYTES)] + before + after),
    "remove bytes": _with_bytes(lambda before, after, n: before + after[1 + n % 200 :]),
    "truncate": _with_bytes(lambda before, _, n: before + (b"", b"\n")[n % 2]),
    "drop lines": _with_lines(lambda lines, at, n: lines[:at] + lines[at + 1 + n % 4 :]),
    "repeat a line": _with_lines(_repeat),
    "move a line": _with_lines(_move),
    "replace a number": _replaced(NUMBER, _one_of(NUMBERS)),
    "replace same numbers": _replace_same_numbers,
    "multiply a column": _replaced(LIST, _multiplied),
    "one value for a key": _one_value_for_a_key,
    "replace a string": _replaced(STRING, _text),
    "replace a key": _replaced(KEY, lambda old, choice: _text(old, choice) + b":"),
    "duplicate a key": _replaced(KEY, _again),
    "drop a field": _replaced(FIELD, _one_of((b"",))),
    "replace a list": _replaced(LIST, _one_of(LISTS)),
    "replace a value": _replaced(VALUE, _one_of(NUMBERS)),
    "swap values": _swap_values,
    "nest": _replaced(VALUE, _nested),
    "retype": _replaced(TYPE, _one_of(TYPES)),
    "recode": _recode,
}

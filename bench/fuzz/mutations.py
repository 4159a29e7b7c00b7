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

NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"(?!:)')
KEY = re.compile(rb'"(?:[^"\\]|\\.)*":')
LIST = re.compile(rb"\[[^\[\]{}]*\]")
VALUE = re.compile(rb'(?<=":)(?:"(?:[^"\\]|\\.)*"|\[[^\[\]{}]*\]|\{[^\[\]{}]*\}|[-\w.]+)')
TYPE = re.compile(rb'(?<="type":")\w+')
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
    *(
        b"2026-11-21T10:00:00+23:59",
        b"torch.utils.data.dataloader.DataLoader",
        b"DistributedSampler",
    ),
    b"\\ud800",
    b"\\u0000",
    b"\\x",
    b"\\",
    b'\\"',
)
BYTES = (
    *(
        b"\x00",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xff\xfe",
        b"\xc3(",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
    ),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\xe2\x80\xa8", b"\x0b", b"\x0c", b"\x85", b"\t", b" "),
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"//", b"#", b"/*", b"-", b"e", b"0", b"9"),
    b'{"type":"header"}\n',
    b'{"type":"end","batches":0}\n',
    b"{}\n",
    b"[]\n",
    b"null\n",
)


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


def _text(choice: int) -> bytes:
    """A string of JSON, with escapes only where they must be or wherever they can be."""
    texts = (*HOSTILE, *TEXTS)
    text = texts[choice % len(texts)]
    if isinstance(text, bytes):
        return b'"%s"' % text
    return json.dumps(text, ensure_ascii=choice % 2 == 0).encode("utf-8", "surrogatepass")


def _at(content: bytes, place: float) -> int:
    return int(place * (len(content) + 1))


def _replaced(pattern: re.Pattern[bytes], content: bytes, place: float, new: bytes) -> bytes:
    matches = list(pattern.finditer(content))
    if not matches:
        return content
    start, stop = matches[int(place * len(matches))].span()
    return content[:start] + new + content[stop:]


def _flip_bits(content: bytes, place: float, choice: int) -> bytes:
    at = _at(content, place)
    return (
        content[:at]
        + bytes(byte ^ (1 << choice % 8) for byte in content[at : at + 1])
        + content[at + 1 :]
    )


def _put_bytes(content: bytes, place: float, choice: int) -> bytes:
    at = 0 if choice % 7 == 0 else _at(content, place)
    return content[:at] + BYTES[choice % len(BYTES)] + content[at:]


def _remove_bytes(content: bytes, place: float, choice: int) -> bytes:
    at = _at(content, place)
    return content[:at] + content[at + 1 + choice % 200 :]


def _truncate(content: bytes, place: float, choice: int) -> bytes:
    return content[: _at(content, place)] + (b"", b"\n")[choice % 2]


def _lines(
    change: Callable[[list[bytes], int, int], list[bytes]],
) -> Callable[[bytes, float, int], bytes]:
    def changed(content: bytes, place: float, choice: int) -> bytes:
        lines = content.splitlines(keepends=True)
        return b"".join(change(lines, int(place * len(lines)), choice)) if lines else content

    return changed


def _drop(lines: list[bytes], at: int, choice: int) -> list[bytes]:
    return lines[:at] + lines[at + 1 + choice % 4 :]


def _repeat(lines: list[bytes], at: int, choice: int) -> list[bytes]:
    return lines[:at] + [lines[at]] * (2, 2, 3, 40)[choice % 4] + lines[at + 1 :]


def _swap(lines: list[bytes], at: int, choice: int) -> list[bytes]:
    other = choice % len(lines)
    lines[at], lines[other] = lines[other], lines[at]
    return lines


def _move(lines: list[bytes], at: int, choice: int) -> list[bytes]:
    line = lines.pop(at)
    lines.insert(choice % (len(lines) + 1), line)
    return lines


def _replace_number(content: bytes, place: float, choice: int) -> bytes:
    return _replaced(NUMBER, content, place, NUMBERS[choice % len(NUMBERS)])


def _replace_same_numbers(content: bytes, place: float, choice: int) -> bytes:
    """All that are equal, so that what adds up may still do so."""
    matches = list(NUMBER.finditer(content))
    if not matches:
        return content
    old = matches[int(place * len(matches))][0]
    new = NUMBERS[choice % len(NUMBERS)]
    return NUMBER.sub(lambda match: new if match[0] == old else match[0], content)


def _multiply_column(content: bytes, place: float, choice: int) -> bytes:
    """Every number in one list, by a power of ten: valid, and odd."""
    matches = list(LIST.finditer(content))
    if not matches:
        return content
    start, stop = matches[int(place * len(matches))].span()
    new = NUMBER.sub(lambda match: match[0] + b"0" * (choice % 14), content[start:stop])
    return content[:start] + new + content[stop:]


def _nullify(content: bytes, place: float, choice: int) -> bytes:
    """Every value of one key."""
    keys = sorted(set(KEY.findall(content)))
    if not keys:
        return content
    new = (b"null", b"0", b"[]", b"{}", b'""', b"1", b"4611686018427387903")[choice % 7]
    key = re.escape(keys[int(place * len(keys))])
    return re.sub(rb"(?<=%s)(?:\"[^\"]*\"|\[[^\[\]{}]*\]|[-\w.]+)" % key, new, content)


def _replace_string(content: bytes, place: float, choice: int) -> bytes:
    return _replaced(STRING, content, place, _text(choice))


def _replace_key(content: bytes, place: float, choice: int) -> bytes:
    return _replaced(KEY, content, place, _text(choice) + b":")


def _duplicate_key(content: bytes, place: float, choice: int) -> bytes:
    matches = list(KEY.finditer(content))
    if not matches:
        return content
    match = matches[int(place * len(matches))]
    value = NUMBERS[choice % len(NUMBERS)]
    return content[: match.start()] + match[0] + value + b"," + content[match.start() :]


def _drop_field(content: bytes, place: float, choice: int) -> bytes:  # noqa: ARG001 - as the others
    fields = re.compile(rb'"\w+":(?:"(?:[^"\\]|\\.)*"|\[[^\[\]{}]*\]|[-\w.]+),')
    return _replaced(fields, content, place, b"")


def _replace_list(content: bytes, place: float, choice: int) -> bytes:
    lists = (b"[]", b"[null]", b"null", b"[0]", b"[1,2,3]", b"[[]]", b"[{}]", b'["a"]', b"{}", b"0")
    return _replaced(LIST, content, place, lists[choice % len(lists)])


def _replace_value(content: bytes, place: float, choice: int) -> bytes:
    return _replaced(VALUE, content, place, NUMBERS[choice % len(NUMBERS)])


def _swap_values(content: bytes, place: float, choice: int) -> bytes:
    matches = list(VALUE.finditer(content))
    if not matches:
        return content
    return _replaced(VALUE, content, place, matches[choice % len(matches)][0])


def _nest(content: bytes, place: float, choice: int) -> bytes:
    depth = (50, 500, 900, 980, 1_000, 5_000, 100_000)[choice % 7]
    opening, closing = ((b"[", b"]"), (b'{"a":', b"}"))[choice % 2]
    nested = opening * depth + (b"1" if choice % 3 else b"") + closing * depth
    return _replaced((VALUE, NUMBER)[choice % 5 == 0], content, place, nested)


def _retype(content: bytes, place: float, choice: int) -> bytes:
    types = (*sorted(set(TYPE.findall(content))), b"", b"end", b"other")
    return _replaced(TYPE, content, place, types[choice % len(types)])


def _recode(content: bytes, place: float, choice: int) -> bytes:  # noqa: ARG001 - as the others
    text = content.decode("utf-8", "replace")
    return text.encode(("utf-16", "utf-32", "utf-8-sig", "utf-16-le", "utf-7")[choice % 5])


MUTATIONS: dict[str, Callable[[bytes, float, int], bytes]] = {
    "flip bits": _flip_bits,
    "put bytes": _put_bytes,
    "remove bytes": _remove_bytes,
    "truncate": _truncate,
    "drop lines": _lines(_drop),
    "repeat a line": _lines(_repeat),
    "swap lines": _lines(_swap),
    "move a line": _lines(_move),
    "replace a number": _replace_number,
    "replace same numbers": _replace_same_numbers,
    "multiply a column": _multiply_column,
    "one value for a key": _nullify,
    "replace a string": _replace_string,
    "replace a key": _replace_key,
    "duplicate a key": _duplicate_key,
    "drop a field": _drop_field,
    "replace a list": _replace_list,
    "replace a value": _replace_value,
    "swap values": _swap_values,
    "nest": _nest,
    "retype": _retype,
    "recode": _recode,
}

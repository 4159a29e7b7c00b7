"""The lines that are most of a log, those with batches and readings, decoded many at once.

A log has a short one of each for every half second, and to decode and check them one by one takes
most of reading it. Only lines that are exactly as the recorder writes them are decoded here, so
that nothing is taken that `codec.decode` would not take; all others are left to that.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import accumulate, chain, islice, pairwise
from operator import ne
from typing import TYPE_CHECKING, Any

import numpy as np

from loadeval.runlog.columns import UNKNOWN, constant
from loadeval.runlog.log_file.fields import values_of
from loadeval.runlog.model import COLUMNS, Block, Readings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadeval.runlog.columns import Column

BLOCK = b'{"type":"block",'
READINGS = b'{"type":"readings",'
BETWEEN = tuple(
    b'{"type":"%s",' % name.encode()
    for name in (
        *("readings", "stages", "worker_start", "code", "operator", "gpu_idle", "padding"),
        "event",
    )
)
"""These lines may stand anywhere: the blocks before and after one follow on one another."""
COUNT = b"(?:0|[1-9][0-9]{0,17})"
"""It has fewer digits than a column can hold."""
NULL = b"null"
COUNT_OR_NULL = b"(?:%s|%s)" % (COUNT, NULL)
KNOWN = rb"(\[%s(?:,%s)*\])" % (COUNT, COUNT)
WITH_GAPS = rb"(%s|\[%s(?:,%s)*\])" % (NULL, COUNT_OR_NULL, COUNT_OR_NULL)
BLOCK_AS_WRITTEN = re.compile(
    rb'^\{"type":"block","epoch":(%s),"arm":"(real|ideal)","request_ns":%s,"wait_ns":%s,'
    rb'"step_ns":%s,"samples":%s,"nbytes":%s,"pair":(%s)(,"instrumented":true)?\}\n'
    % (COUNT, KNOWN, KNOWN, WITH_GAPS, WITH_GAPS, WITH_GAPS, COUNT_OR_NULL),
    re.MULTILINE,
)
TEXT = rb'"[ !#-\[\]-~]*"'
"""It is ASCII, without escapes."""
READINGS_AS_WRITTEN = re.compile(
    rb'^\{"type":"readings","probe":(%s),"subject":(%s),"time_ns":%s,'
    rb'"values":(\{(?:%s:\[[-+.,0-9eEnul]*\],?)*\}),"missing":null\}\n' % (TEXT, TEXT, KNOWN, TEXT),
    re.MULTILINE,
)


def decoded_lines(texts: Sequence[bytes]) -> dict[int, Block | Readings | None]:
    """The blocks and readings in `texts`, consecutive lines of a log, by their places there.

    Some are one, at the place of the first, and at those of the others is None: batches of one
    epoch, arm and pair with no lines but those BETWEEN among them, and readings of one subject with
    the same quantities. Where a line of a kind is not as the recorder writes it, none of its kind
    is there.
    """
    lines: dict[int, Block | Readings | None] = {}
    for decoded in (_blocks, _readings):
        with suppress(ValueError):  # whoever decodes them one by one will say which is wrong
            lines |= decoded(texts)
    return lines


def _blocks(texts: Sequence[bytes]) -> dict[int, Block | Readings | None]:
    places, breaks = [], []
    for place, text in enumerate(texts):
        if text.startswith(BLOCK):
            places.append(place)
        elif not text.startswith(BETWEEN):
            breaks.append(place)
    rows = BLOCK_AS_WRITTEN.findall(b"".join([texts[place] for place in places]))
    if not rows or len(rows) < len(places):
        return {}
    epochs, arms, *lists, pairs, marks = zip(*rows, strict=True)
    lengths = _lengths_of(lists[0])
    columns = {
        name: _column_of(texts_of_column, lengths)
        for name, texts_of_column in zip(COLUMNS, lists, strict=True)
    }
    stretches = np.searchsorted(breaks, places).tolist()
    kinds = list(zip(epochs, arms, pairs, marks, stretches, strict=True))
    changes = enumerate(map(ne, kinds, islice(kinds, 1, None)), 1)
    firsts = [0, *(at for at, is_other in changes if is_other)]
    ends = [0, *accumulate(lengths)]
    lines: dict[int, Block | Readings | None] = dict.fromkeys(places)
    for first, end in pairwise([*firsts, len(kinds)]):
        epoch, arm, pair, mark, _ = kinds[first]
        lines[places[first]] = Block(
            epoch=int(epoch),
            arm="real" if arm == b"real" else "ideal",
            pair=None if pair == NULL else int(pair),
            instrumented=bool(mark),
            **{name: column[ends[first] : ends[end]] for name, column in columns.items()},
        )
    return lines


def _column_of(lists: Sequence[bytes], lengths: list[int]) -> Column:
    """The numbers in `lists`, one after the other. Raises ValueError for other lengths."""
    if len(lengths) < sum(lengths) and NULL in lists:
        lists = [
            b",".join([NULL] * length) if text == NULL else text
            for text, length in zip(lists, lengths, strict=True)
        ]
    _check(_lengths_of(lists), lengths)
    numbers = b",".join(lists).translate(None, b"[]").replace(NULL, b"%d" % UNKNOWN)
    column: Column = np.fromstring(numbers, dtype=np.int64, sep=",")
    is_constant = (column == column[0]).all()
    return constant(column[0], len(column)) if is_constant else column


def _check(lengths: list[int], expected: list[int]) -> None:
    if lengths != expected:
        raise ValueError("a column is not as long as the others of its line")


def _lengths_of(lists: Sequence[bytes]) -> list[int]:
    if b",".join(lists).count(b",") < len(lists):  # no more than between them
        return [1] * len(lists)
    return [text.count(b",") + 1 for text in lists]


def _readings(texts: Sequence[bytes]) -> dict[int, Block | Readings | None]:
    places = [place for place, text in enumerate(texts) if text.startswith(READINGS)]
    rows = READINGS_AS_WRITTEN.findall(b"".join([texts[place] for place in places]))
    if not rows or len(rows) < len(places):
        return {}
    probes, subjects, times, values = zip(*rows, strict=True)
    lengths = _lengths_of(times)
    latest: dict[tuple[bytes, bytes], list[int]] = {}
    groups: list[list[int]] = []
    contents: list[dict[str, list[Any]]] = json.loads(b"[%s]" % b",".join(values))
    for row, subject in enumerate(zip(probes, subjects, strict=True)):
        group = latest.get(subject, [])
        if not group or contents[row].keys() != contents[group[0]].keys():
            group = latest[subject] = []
            groups.append(group)
        group.append(row)
    lines: dict[int, Block | Readings | None] = dict.fromkeys(places)
    for group in groups:
        first, counts = group[0], [lengths[row] for row in group]
        joined = {}
        for name in contents[first]:
            lists = [contents[row][name] for row in group]
            _check(list(map(len, lists)), counts)
            joined[name] = values_of(name, list(chain.from_iterable(lists)))
        lines[places[first]] = Readings(
            probe=json.loads(probes[first]),
            subject=json.loads(subjects[first]),
            time_ns=_column_of([times[row] for row in group], counts),
            values=joined,
        )
    return lines

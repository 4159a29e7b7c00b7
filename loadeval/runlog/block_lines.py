"""The block lines of a log, decoded all at once by Polars, which `loadeval[cluster]` has.

A log has one short line for each half second, and to decode and check each by itself takes most of
reading it. Only lines that are exactly as the recorder writes them are decoded here, so that
nothing is taken that `codec.decode` would not take; for any other this gives None.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from loadeval.runlog.columns import UNKNOWN
from loadeval.runlog.model import COLUMNS, Block

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK = b'{"type":"block",'
COUNT = "(?:0|[1-9][0-9]{0,17})"
"""Fewer digits than a column can hold."""
COUNT_OR_NULL = f"(?:{COUNT}|null)"
KNOWN = rf"\[{COUNT}(?:,{COUNT})*\]"
WITH_GAPS = rf"(?:null|\[{COUNT_OR_NULL}(?:,{COUNT_OR_NULL})*\])"
AS_WRITTEN = (
    rf'^\{{"type":"block","epoch":{COUNT},"arm":"(?:real|ideal)","request_ns":{KNOWN},'
    rf'"wait_ns":{KNOWN},"step_ns":{WITH_GAPS},"samples":{WITH_GAPS},"nbytes":{WITH_GAPS},'
    rf'"pair":{COUNT_OR_NULL}\}}\n$'
)


def decoded_blocks(texts: Mapping[int, bytes]) -> dict[int, Block | None] | None:
    """The blocks in `texts`, the block lines of one log, each by its place there, ascending.

    Lines that follow on one another, of one epoch, arm and pair, are one block, at the place of the
    first; at those of the others is None. None as a whole without Polars, or where a line is not as
    the recorder writes it.
    """
    try:
        import polars as pl  # noqa: PLC0415 - optional, and heavy
    except ImportError:
        return None
    places = list(texts)
    lines = pl.Series([text.decode("ascii", "replace") for text in texts.values()], dtype=pl.String)
    if not lines.str.contains(AS_WRITTEN).all():
        return None
    count = pl.Int64()
    dtypes = {"epoch": count, "arm": pl.String(), "pair": count}
    kind = pl.Struct({**dtypes, **dict.fromkeys(COLUMNS, pl.List(count))})
    frame = lines.str.json_decode(kind).struct.unnest()
    lengths = frame["wait_ns"].list.len()
    unknown = pl.lit(UNKNOWN, count).repeat_by(pl.lit(lengths))
    frame = frame.with_columns(pl.col(name).fill_null(unknown) for name in COLUMNS)
    if any((frame[name].list.len() != lengths).any() for name in COLUMNS):
        return None
    columns = {name: frame[name].explode().fill_null(UNKNOWN).to_numpy() for name in COLUMNS}
    kinds = frame.select(list(dtypes)).rows()
    firsts = [
        at
        for at in range(len(places))
        if not at or places[at] != places[at - 1] + 1 or kinds[at] != kinds[at - 1]
    ]
    rows = [0, *lengths.cum_sum().to_list()]
    found: dict[int, Block | None] = dict.fromkeys(places)
    for first, end in pairwise([*firsts, len(places)]):
        epoch, arm, pair = kinds[first]
        part = slice(rows[first], rows[end])
        values = {name: column[part] for name, column in columns.items()}
        found[places[first]] = Block(epoch=epoch, arm=arm, pair=pair, **values)
    return found

"""The fields of a line, checked by the annotations of the dataclass that they make."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from loadeval.errors import RunLogError
from loadeval.runlog.columns import WHOLE, is_count, unexpected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fields = dict[str, Any]
TYPES_IN_WORDS = {int: WHOLE, str: "text", bool: "true or false", NoneType: "null"}


def record_of(kind: Any, fields: Fields) -> Any:
    """`kind`, a dataclass of plain fields, with all of `fields`, which are checked."""
    expected = options_of(kind)
    check_names(fields, expected)
    return kind(**{name: _value(options, name, fields[name]) for name, options in expected.items()})


@cache
def options_of(kind: Any) -> dict[str, tuple[Any, ...]]:
    """The types or the words that each field of a dataclass may be, by its annotation."""
    return {
        name: get_args(hint)
        if isinstance(hint, UnionType) or get_origin(hint) is Literal
        else (hint,)
        for name, hint in get_type_hints(kind).items()
    }


def check_names(fields: Fields, expected: Fields) -> None:
    """Raises RunLogError when `fields` have other names than `expected`."""
    if fields.keys() == expected.keys():
        return
    for name in expected:
        if name not in fields:
            raise RunLogError(f"has no {name!r}, which was expected there")
    unknown = ", ".join(repr(name) for name in fields if name not in expected)
    raise RunLogError(
        f"has {unknown}, which the format does not know, where only "
        f"{', '.join(map(repr, expected))} were expected"
    )


def _value(options: tuple[Any, ...], name: str, value: Any) -> Any:
    for option in options:
        if _fits(option, value):
            nested = isinstance(value, dict) and dataclasses.is_dataclass(option)
            return record_of(option, value) if nested else value
    raise unexpected(name, value, " or ".join(map(_in_words, options)))


def _fits(option: Any, value: Any) -> bool:
    if isinstance(option, str):
        return bool(value == option)
    if option is int:
        return is_count(value)
    return isinstance(value, option if option in (str, bool, NoneType) else dict)


def _in_words(option: Any) -> str:
    return repr(option) if isinstance(option, str) else TYPES_IN_WORDS.get(option, "an object")


def plain_fields(kind: Any, fields: Fields, columns: Iterable[str]) -> Fields:
    """The fields that hold one value, checked; and that there are all, and no others."""
    expected = options_of(kind)
    check_names(fields, expected)
    others = expected.keys() - set(columns)
    return {name: _value(expected[name], name, fields[name]) for name in others}


def check_lengths(columns: Mapping[str, Any], first: str) -> None:
    """Raises RunLogError when a column is not as long as the one named `first`."""
    length = len(columns[first])
    for name, column in columns.items():
        if len(column) != length:
            raise RunLogError(
                f"has {len(column)} values in {name!r} and {length} in {first!r}, where as many "
                "were expected"
            )

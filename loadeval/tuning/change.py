"""The change to a program that gives its DataLoader other settings, as a unified diff."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.analysis.predict.tuning import OF_WORKERS, WORKERS
from loadeval.errors import LoadevalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import libcst

NEEDS_LIBCST = "a diff needs LibCST: pip install 'loadeval[tune]'"
NO_CALL = "line {line} has no call of DataLoader(...) alone whose arguments are written out"
POSITIONS = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers"),
    *("collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn"),
    "multiprocessing_context",
)
"""The arguments of a DataLoader that may be passed without their names."""
NO_NEWLINE = "\n\\ No newline at end of file\n"


class NoChangeError(LoadevalError):
    """The source of the program cannot be changed; the message says why."""


def changed(source: str, line: int, settings: Mapping[str, Any]) -> str:
    """`source` with `settings` in the call of DataLoader at `line`.

    Without workers it passes none of the arguments that need some. Raises NoChangeError where
    there is no such call, or it is not literal.
    """
    try:
        import libcst  # noqa: PLC0415 - an extra, and slow to import
        from libcst.metadata import MetadataWrapper, PositionProvider  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise NoChangeError(NEEDS_LIBCST) from error

    class Calls(libcst.CSTVisitor):
        METADATA_DEPENDENCIES = (PositionProvider,)

        def __init__(self) -> None:
            super().__init__()
            self.found: list[libcst.Call] = []

        def visit_Call(self, node: libcst.Call) -> None:  # noqa: N802 - libcst names it
            name = node.func.attr if isinstance(node.func, libcst.Attribute) else node.func
            place = self.get_metadata(PositionProvider, node)
            is_there = place.start.line <= line <= place.end.line
            if is_there and isinstance(name, libcst.Name) and name.value == "DataLoader":
                self.found.append(node)

    try:
        wrapper = MetadataWrapper(libcst.parse_module(source))
    except libcst.ParserSyntaxError as error:
        raise NoChangeError(NO_CALL.format(line=line)) from error
    calls = Calls()
    wrapper.visit(calls)
    literal = [call for call in calls.found if not any(each.star for each in call.args)]
    if len(literal) != 1 or len(calls.found) != 1:
        raise NoChangeError(NO_CALL.format(line=line))
    (call,) = literal
    module = wrapper.module.deep_replace(call, call.with_changes(args=_arguments(call, settings)))
    assert isinstance(module, libcst.Module)  # noqa: S101 - only a call in it was replaced
    return module.code


def _arguments(call: libcst.Call, settings: Mapping[str, Any]) -> list[libcst.Arg]:
    """The arguments of `call` with `settings`: in their places, and new ones after the last."""
    import libcst  # noqa: PLC0415 - an extra

    left = dict(settings)
    dropped = (*OF_WORKERS, "timeout") if settings.get(WORKERS) == 0 else ()
    last = call.args[-1]
    between = next((each.comma for each in call.args[:-1]), None) or libcst.Comma(
        whitespace_after=libcst.SimpleWhitespace(" ")
    )
    kept: list[libcst.Arg] = []
    for position, argument in enumerate(call.args):
        name = argument.keyword.value if argument.keyword else POSITIONS[position]
        if name in left:
            value = libcst.parse_expression(repr(left.pop(name)))
            kept.append(argument.with_changes(value=value))
        elif name not in dropped or argument.keyword is None:
            kept.append(argument)
    for name, setting in left.items():
        kept[-1] = _followed(kept[-1], between)
        none = libcst.SimpleWhitespace("")
        kept.append(
            libcst.Arg(
                libcst.parse_expression(repr(setting)),
                libcst.Name(name),
                equal=libcst.AssignEqual(none, none),
            )
        )
    end = kept[-1]
    if end.keyword is None or last.keyword is None or end.keyword.value != last.keyword.value:
        comma = _without_comment(last.comma) if end.comma is not last.comma else last.comma
        kept[-1] = end.with_changes(comma=comma, whitespace_after_arg=last.whitespace_after_arg)
    return kept


def _followed(argument: libcst.Arg, between: Any) -> libcst.Arg:
    """`argument` where another one follows it; it keeps the comment at its line's end."""
    import libcst  # noqa: PLC0415 - an extra

    own, after = _comment_of(argument.comma), _without_comment(between)
    if own is not None and isinstance(after.whitespace_after, libcst.ParenthesizedWhitespace):
        after = after.with_deep_changes(after.whitespace_after, first_line=own)
    return argument.with_changes(comma=after, whitespace_after_arg=libcst.SimpleWhitespace(""))


def _comment_of(comma: Any) -> Any:
    """The end of the line after `comma`, where there is one."""
    return getattr(getattr(comma, "whitespace_after", None), "first_line", None)


def _without_comment(comma: Any) -> Any:
    import libcst  # noqa: PLC0415 - an extra

    if _comment_of(comma) is None:
        return comma
    return comma.with_deep_changes(comma.whitespace_after, first_line=libcst.TrailingWhitespace())


def unified_diff(before: str, after: str, file: Path) -> str:
    """The diff between two texts of `file`, as `git apply` takes it in the working folder."""
    name = Path(os.path.relpath(file)).as_posix()
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else line + NO_NEWLINE for line in lines)

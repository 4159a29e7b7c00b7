"""What is computed of a run once, however often it is asked for."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.data.run import Run

Rest = ParamSpec("Rest")
Result = TypeVar("Result")


def once_per_run(
    compute: Callable[Concatenate[Run, Rest], Result],
) -> Callable[Concatenate[Run, Rest], Result]:
    """`compute`, whose results are kept in the run, and go with it: no run changes."""

    @wraps(compute)
    def kept(run: Run, /, *args: Rest.args, **options: Rest.kwargs) -> Result:
        results = vars(run).setdefault("_computed", {})
        key = (compute, args, *options.items())
        if key not in results:
            results[key] = compute(run, *args, **options)
        return cast("Result", results[key])

    return kept

"""What is computed of a run once, however often it is asked for."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.data.run import Run

    Function = TypeVar("Function", bound=Callable[..., Any])


def once_per_run(compute: Function) -> Function:
    """`compute` as a cached property of its first argument, a run, would be: no run changes.

    Its results are kept in the run, and go with it. Further arguments are given by their places.
    """

    @wraps(compute)
    def kept(run: Run, *args: Any) -> Any:
        results = vars(run).setdefault("_computed", {})
        key = (compute, *args)
        if key not in results:
            results[key] = compute(run, *args)
        return results[key]

    return cast("Function", kept)

"""What draws: packages that `loadeval[report]` has, and loadeval alone does not."""

from __future__ import annotations

from importlib.util import find_spec

from loadeval.errors import UsageError


def check_installed(package: str, what: str) -> None:
    """Raises UsageError where `package`, which `what` needs, is not installed."""
    if find_spec(package) is None:
        raise UsageError(
            f"{what} needs the package {package}, which is not installed; install it with: "
            'pip install "loadeval[report]"'
        )

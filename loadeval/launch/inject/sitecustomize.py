"""What each Python imports when it starts, as the folder of this file is first on PYTHONPATH.

It may be the very old Python of a tool that the command starts. Even there this file must be valid,
and must run the environment's own sitecustomize, which it hides.
"""

import os
import sys

if __name__ == "sitecustomize":  # pragma: no branch - only Python imports it
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 5 ms
    if sys.version_info >= (3, 7):  # noqa: UP036 - it may be an old Python

        def _patch(name, adapter):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - old Pythons have none
            """Patch a module of a known framework. Only now is a part of loadeval imported."""
            from loadeval.launch import hook  # noqa: PLC0415 - only with a known framework

            return hook.patch(name, adapter)

        sys.path.insert(0, os.path.dirname(here))  # noqa: PTH120 - pathlib takes 5 ms
        import loadeval_inject  # type: ignore[import-not-found]  # it is in that folder

        del sys.path[0]
        loadeval_inject.begin(here, _patch)
    else:
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]  # noqa: PTH100 - pathlib takes 5 ms
        ours = sys.modules.pop("sitecustomize")
        try:
            import sitecustomize  # noqa: F401 - the environment's own
        except ImportError:
            sys.modules["sitecustomize"] = ours

"""What each Python imports when it starts, as the folder of this file is first on PYTHONPATH.

That may be a Python of long ago, of a tool that the command starts: here it finds no mistake, and
the environment's own sitecustomize, which this one hides.
"""

import sys

if __name__ == "sitecustomize":  # pragma: no branch - only Python imports it
    if sys.version_info >= (3, 7):  # noqa: UP036 - see above
        import loadeval_inject  # type: ignore[import-not-found]  # it is beside this file

        loadeval_inject.begin()
    else:
        import os

        here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]  # noqa: PTH100 - as above
        ours = sys.modules.pop("sitecustomize")
        try:
            import sitecustomize  # noqa: F401 - another one
        except ImportError:
            sys.modules["sitecustomize"] = ours

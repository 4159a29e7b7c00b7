"""What each Python imports when it starts, as the folder of this file is first on PYTHONPATH.

It may be the very old Python of a tool that the command starts, for which this file must be valid.
"""

import os
import sys

if __name__ == "sitecustomize" and sys.version_info >= (3, 7):
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 5 ms

    def _patch(name, adapter):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - old Pythons have none
        from loadeval.launch import hook  # noqa: PLC0415 - only who imports a framework needs it

        return hook.patch(name, adapter)

    sys.path.insert(0, os.path.dirname(here))  # noqa: PTH120 - pathlib takes 5 ms
    import loadeval_inject  # type: ignore[import-not-found]  # it is in that folder

    del sys.path[0]
    loadeval_inject.begin(here, _patch)

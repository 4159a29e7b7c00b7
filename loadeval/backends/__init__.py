"""Several loaders under one training step, and the backends that loadeval writes for a folder.

Read `compare` for `compare_backends`, which takes loaders that somebody wrote. `data` finds what
lies in a folder, `kinds` says what is to be done with each kind of data, `images` reads what is to
be done with images, and `catalogue` lists the backends, each of which `code` writes from its
template. `served` runs one in a process of its own, `check` compares what they load, and `choose`
measures them in turns.
"""

from loadeval.backends.compare import compare_backends

__all__ = ["compare_backends"]

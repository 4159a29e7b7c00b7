"""What all tests share: how examples of properties are drawn."""

from __future__ import annotations

from tempfile import gettempdir

from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

# The same examples each time, however slow the machine is, and nothing left in the clone.
settings.register_profile("loadeval", deadline=None, derandomize=True, database=None)
settings.load_profile("loadeval")
set_hypothesis_home_dir(gettempdir())

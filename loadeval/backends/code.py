"""Writes the code of a backend from its template."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from loadeval.analysis.choice import UNITS, Kind
from loadeval.backends.catalogue import OWN
from loadeval.backends.kinds import KINDS

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.backends.catalogue import WrittenBackend
    from loadeval.backends.check import Transforms
    from loadeval.backends.shards import Label

THREE_OR_MORE = re.compile(r"\n{4,}")


@dataclass(frozen=True, slots=True)
class Work:
    """What each backend does: which files it loads, how, and in batches of how many.

    `own` is the user's function, module:function, where there is one. `suffixes` are those of what
    is decoded, and `label` tells where shards have its class, `field` where lines of JSON
    have their text.
    """

    folder: Path
    transforms: Transforms
    batch_size: int
    workers: int
    own: str = ""
    kind: Kind = Kind.IMAGES
    suffixes: frozenset[str] = frozenset()
    label: Label | None = None
    field: str = ""

    @property
    def reference(self) -> str:
        """The backend that the others are compared with."""
        return OWN if self.own else KINDS[self.kind].reference


def code_of(candidate: WrittenBackend, work: Work) -> str:
    """The code of `candidate`: a program that loads all of the folder once, to copy from."""
    from jinja2 import (  # noqa: PLC0415 - heavy
        BaseLoader,
        Environment,
        FunctionLoader,
        StrictUndefined,
    )

    folder = files("loadeval") / "templates"
    loader: BaseLoader = FunctionLoader(lambda name: (folder / name).read_text("utf-8"))
    environment = Environment(  # noqa: S701 - what is written is Python, and each value a literal
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["python"] = json.dumps
    template = environment.get_template(f"{candidate.template}.py.j2")
    text = template.render(work=_values(candidate, work))
    return THREE_OR_MORE.sub("\n\n\n", text).rstrip() + "\n"


def _values(candidate: WrittenBackend, work: Work) -> dict[str, Any]:
    module, _, name = work.own.partition(":")
    return {
        **work.transforms.values(),
        "folder": work.folder,
        "batch_size": work.batch_size,
        "workers": work.workers,
        "device": candidate.device,
        "unit": UNITS[work.kind],
        "files": KINDS[work.kind].suffixes,
        "shards": work.kind is Kind.SHARDS,
        "suffixes": sorted(suffix[1:] for suffix in work.suffixes),
        "label": work.label,
        "field": work.field,
        "own": work.own,
        "own_module": module,
        "own_name": name,
    }

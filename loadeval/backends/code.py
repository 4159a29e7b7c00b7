"""Writes the code of a backend from its template."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from loadeval.backends.catalogue import OWN, REFERENCE
from loadeval.backends.transforms import LEVELS

if TYPE_CHECKING:
    from pathlib import Path

    from loadeval.backends.catalogue import WrittenBackend
    from loadeval.backends.transforms import Transforms

THREE_OR_MORE = re.compile(r"\n{4,}")


@dataclass(frozen=True, slots=True)
class Work:
    """What each backend does: which files it loads, how, and in batches of how many.

    `own` is the user's function, module:function, where there is one.
    """

    folder: Path
    transforms: Transforms
    batch_size: int
    workers: int
    own: str = ""

    @property
    def reference(self) -> str:
        """The backend that the others are compared with."""
        return OWN if self.own else REFERENCE


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
    transforms = work.transforms
    module, _, name = work.own.partition(":")
    height, width = transforms.resized or (0, 0)
    crop_height, crop_width = transforms.cropped or (0, 0)

    def size_of(arguments: str) -> str:
        return f"resized_size({arguments})" if transforms.shorter else f"({width}, {height})"

    return {
        "folder": work.folder,
        "batch_size": work.batch_size,
        "workers": work.workers,
        "shorter": transforms.shorter,
        "resize_height": height,
        "resize_width": width,
        "size_of": size_of,
        "crop": transforms.cropped is not None,
        "crop_height": crop_height,
        "crop_width": crop_width,
        "flip": transforms.flipped,
        "normalize": bool(transforms.mean),
        "mean": list(transforms.mean),
        "std": list(transforms.std),
        "mean_255": [round(LEVELS * value, 4) for value in transforms.mean],
        "std_255": [round(LEVELS * value, 4) for value in transforms.std],
        "device": candidate.device,
        "own": work.own,
        "own_module": module,
        "own_name": name,
    }

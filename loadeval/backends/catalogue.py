"""The backends that loadeval writes, and whether each can run here."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from loadeval.analysis.choice import Standing
from loadeval.probes.gpu import driver

if TYPE_CHECKING:
    from collections.abc import Collection

JPEG = frozenset({".jpg", ".jpeg"})
OWN = "yours"
"""The user's own function, which is then the reference."""


@dataclass(frozen=True, slots=True)
class WrittenBackend:
    """A backend: its template, the modules that it imports, and how these are installed.

    `one_epoch` tells that its loaders serve one epoch each. `suffixes` are the files that it reads,
    all where there are none. `device` is DALI's.
    """

    name: str
    template: str
    modules: tuple[str, ...]
    install: str
    one_epoch: bool = False
    suffixes: frozenset[str] = field(default=frozenset())
    device: str = "cpu"

    def unavailable(self, suffixes: Collection[str]) -> Standing | None:
        """Why it cannot load files with these `suffixes` here; None where it can."""
        if self.suffixes and not self.suffixes.intersection(suffixes):
            return Standing.OTHER_FILES
        if self.device == "mixed" and not driver().gpus:
            return Standing.NO_GPU
        if all(map(_is_installed, self.modules)):
            return None
        return Standing.NOT_INSTALLED


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


TORCH = "torch pillow"
DALI = "nvidia-dali-cuda120"
IMAGES = (
    WrittenBackend("pillow", "pillow", ("torch", "PIL"), TORCH),
    WrittenBackend("pillow-draft", "pillow_draft", ("torch", "PIL"), TORCH, suffixes=JPEG),
    WrittenBackend("torchvision", "torchvision", ("torch", "torchvision"), "torchvision"),
    WrittenBackend("opencv", "opencv", ("torch", "cv2"), "opencv-python-headless"),
    WrittenBackend(
        "simplejpeg", "simplejpeg", ("torch", "PIL", "simplejpeg"), "simplejpeg", suffixes=JPEG
    ),
    WrittenBackend("pyvips", "pyvips", ("torch", "pyvips"), '"pyvips[binary]"'),
    WrittenBackend("dali", "dali", ("torch", "nvidia.dali"), DALI),
    WrittenBackend("dali-gpu", "dali", ("torch", "nvidia.dali"), DALI, device="mixed"),
    WrittenBackend("spdl", "spdl", ("torch", "PIL", "spdl.pipeline"), "spdl-core", one_epoch=True),
)
SHARDS = tuple(
    replace(
        backend,
        modules=(*backend.modules, "webdataset"),
        install=f"{backend.install} webdataset",
    )
    if backend.template != "dali"
    else backend
    for backend in IMAGES
    if backend.template != "torchvision"
)
"""DALI reads shards itself; the others decode what WebDataset reads."""
AUDIO = (
    WrittenBackend("soundfile", "soundfile", ("torch", "soundfile", "scipy"), "soundfile scipy"),
    WrittenBackend("torchcodec", "torchcodec", ("torch", "torchcodec"), "torchcodec"),
    WrittenBackend("dali", "dali_audio", ("torch", "nvidia.dali"), DALI),
)
TOKENIZERS = ("torch", "tokenizers")
TEXT = (
    WrittenBackend("tokenizers", "tokenizers", TOKENIZERS, "tokenizers"),
    WrittenBackend("tokenizers-batch", "tokenizers_batch", TOKENIZERS, "tokenizers"),
    WrittenBackend("token-file", "tokens", TOKENIZERS, "tokenizers"),
)
VIDEO = (
    WrittenBackend("pyav", "pyav", ("torch", "av"), "av"),
    WrittenBackend("torchcodec", "torchcodec_video", ("torch", "torchcodec"), "torchcodec"),
    WrittenBackend("dali", "dali_video", ("torch", "nvidia.dali"), DALI),
)

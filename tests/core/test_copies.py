"""Copies of leaves: their values and layout, and the memory that large ones lie in."""

from __future__ import annotations

import gc
import mmap
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from loadeval.core import batch as copies
from loadeval.core.batch import LARGE, Regions, clone

DOUBLES = np.arange(2 * 48 * 50 * 5.0).reshape(2, 48, 50, 5)
FLOATS = torch.arange(2 * 48 * 50 * 8.0).reshape(2, 48, 50, 8)
RECORDS = np.zeros(20_000, dtype=[("x", "f8"), ("y", "i4")])
RECORDS["x"] = np.arange(20_000)
PAGES = 8_000_000 // mmap.PAGESIZE


@pytest.fixture(autouse=True)
def regions(monkeypatch: pytest.MonkeyPatch) -> Regions:
    """The regions that the test's copies use: none yet."""
    fresh = Regions()
    monkeypatch.setattr(copies, "REGIONS", fresh)
    return fresh


def are_used(regions: Regions) -> bool:
    return bool(regions._free)


def unused(regions: Regions) -> list[mmap.mmap]:
    return [region for alike in regions._free.values() for region in alike]


@pytest.mark.parametrize(
    "array",
    [DOUBLES, DOUBLES.transpose(0, 3, 1, 2), DOUBLES[:, ::-1], RECORDS],
    ids=["contiguous", "permuted", "reversed", "records"],
)
def test_a_large_array_lies_in_the_copy_as_before(array: Any, regions: Regions) -> None:
    """It has the values, the type and the strides, and can be written to."""
    copied = clone(array)
    assert np.array_equal(copied, array)
    assert (copied.dtype, copied.strides) == (array.dtype, array.strides)
    assert copied.flags.writeable
    assert not np.shares_memory(copied, array)
    assert are_used(regions)


@pytest.mark.parametrize(
    "tensor",
    [FLOATS, FLOATS.contiguous(memory_format=torch.channels_last)],
    ids=["contiguous", "channels last"],
)
def test_a_large_tensor_is_copied_as_by_torch(tensor: torch.Tensor, regions: Regions) -> None:
    """It has the values, strides and size of storage of a clone."""
    copied, expected = clone(tensor), tensor.clone()
    assert torch.equal(copied, expected)
    assert copied.stride() == expected.stride()
    assert copied.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert copied.data_ptr() != tensor.data_ptr()
    assert are_used(regions)


def test_a_copied_tensor_is_like_any_other(regions: Regions) -> None:
    """It is no view, so that gradients can be computed, and it can be changed in place."""
    copied = clone(FLOATS)
    assert not copied._is_view()
    copied.requires_grad_().mul(2).sum().backward()
    assert copied.grad.unique().tolist() == [2]
    copied.detach_().add_(1)
    assert are_used(regions)


class Subclass(torch.Tensor):
    pass


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*quantize")
@pytest.mark.parametrize(
    "make",
    [
        lambda: DOUBLES[0, 0],
        lambda: FLOATS[0, 0],
        lambda: FLOATS[:, :, :1].expand(FLOATS.shape),
        lambda: DOUBLES.astype(object),
        lambda: FLOATS.as_subclass(Subclass),
        FLOATS.to_sparse,
        lambda: FLOATS.to("meta"),
        lambda: torch.quantize_per_tensor(FLOATS.repeat(4, 1, 1, 1), 1.0, 0, torch.quint8),
        lambda: torch.nested.nested_tensor([FLOATS, FLOATS]),
    ],
    ids=[
        *("small array", "small tensor", "expanded", "objects"),
        *("subclass", "sparse", "meta", "quantized", "nested"),
    ],
)
def test_other_leaves_are_copied_as_their_library_does(
    make: Callable[[], Any], regions: Regions
) -> None:
    leaf = make()
    copied = clone(leaf)
    assert copied is not leaf
    assert type(copied) is type(leaf)
    assert not are_used(regions)


class Pinned(SimpleNamespace):
    """Stands for a tensor in pinned memory, which only a CUDA device can have."""

    def detach(self) -> Pinned:
        return self

    def clone(self) -> Pinned:
        return Pinned(pinned=False)

    def is_pinned(self) -> bool:
        return bool(self.pinned)

    def pin_memory(self) -> Pinned:
        return Pinned(pinned=True)


def test_copies_need_no_torch(regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may also be in the middle of being imported."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert clone(Pinned(pinned=True)).is_pinned()
    assert not clone(Pinned(pinned=False)).is_pinned()
    assert np.array_equal(clone(DOUBLES), DOUBLES)
    assert are_used(regions)


@pytest.mark.parametrize(
    ("leaf", "view"),
    [(DOUBLES, torch.from_numpy), (FLOATS, lambda copied: copied.numpy()[1:])],
    ids=["tensor of an array", "array of a tensor"],
)
def test_memory_is_in_use_while_a_view_is(
    leaf: Any, view: Callable[[Any], Any], regions: Regions
) -> None:
    """However it was made; another copy then has other memory."""
    copied = clone(leaf)
    held = view(copied)
    del copied
    gc.collect()
    assert unused(regions) == []
    del held
    assert len(unused(regions)) == 1


@pytest.mark.parametrize(
    "leaf", [np.ones(1_000_000), torch.ones(2_000_000)], ids=["array", "tensor"]
)
def test_a_copy_into_used_memory_has_no_page_faults(leaf: Any) -> None:
    """Fewer than one in twenty pages."""
    resource = pytest.importorskip("resource")

    def faults() -> int:
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)

    clone(leaf)
    before = faults()
    for _ in range(10):
        clone(leaf)
    assert faults() - before < 10 * PAGES / 20


FORKED = """
import os
import numpy as np
from loadeval.core.batch import clone

copied = clone(np.zeros(100_000))
if os.fork() == 0:
    copied[:] = 1
    os._exit(0)
os.wait()
assert not copied.any()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_forked_process_does_not_change_a_copy() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True)


@pytest.mark.parametrize("library", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("size", [8, LARGE])
def test_what_lies_in_one_memory_does_so_in_the_copy(library: Any, size: int) -> None:
    """A step that changes one in place sees the others changed, as without loadeval."""
    ids = library.arange(size)
    other = library.arange(size)
    batch = {"ids": ids, "labels": ids, "tail": [ids[size // 2 :], ids[::2]], "other": other}
    copy = clone(batch)
    assert copy["labels"] is copy["ids"]
    copy["ids"] += 1
    assert copy["tail"][0].tolist() == (ids[size // 2 :] + 1).tolist()
    assert copy["tail"][1].tolist() == (ids[::2] + 1).tolist()
    assert copy["other"].tolist() == other.tolist() == ids.tolist()


def test_a_tensor_and_the_array_that_it_was_made_of_lie_in_one_memory() -> None:
    array = np.arange(6)
    backwards, tensor = clone((array[::-1], torch.from_numpy(array)))
    tensor += 1
    assert backwards.tolist() == [6, 5, 4, 3, 2, 1]
    assert array.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_conjugate_in_the_same_memory_has_other_values() -> None:
    numbers = torch.complex(torch.ones(2), torch.ones(2))
    copy, conjugate = clone((numbers, numbers.conj()))
    assert copy.tolist() == [1 + 1j, 1 + 1j]
    assert conjugate.tolist() == [1 - 1j, 1 - 1j]


def test_an_image_is_copied_as_pillow_does() -> None:
    """Its pixels are in an object that only its class can copy."""
    image = Image.new("RGB", (2, 2))
    (copy,), uncopied = copies.copied([image])
    image.putpixel((0, 0), (9, 9, 9))
    assert copy.getpixel((0, 0)) == (0, 0, 0)
    assert uncopied == []


class Alarmed:
    """A signal comes while it is copied, and while its samples are counted, not only looked for."""

    def __init__(self) -> None:
        self.x = np.zeros(2)
        self.asked = 0

    def __deepcopy__(self, _: Any) -> Alarmed:
        signal.raise_signal(signal.SIGUSR1)
        return Alarmed()

    @property
    def num_graphs(self) -> int:
        self.asked += 1
        if self.asked > 1:
            signal.raise_signal(signal.SIGUSR1)
        return 1


@pytest.mark.parametrize("look", [clone, copies.survey])
def test_what_a_signals_handler_raises_reaches_the_program(look: Callable[[Any], Any]) -> None:
    def handler(error: type[Exception], *_: object) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, partial(handler, TimeoutError))
    try:
        with pytest.raises(TimeoutError):
            look([Alarmed()])
    finally:
        signal.signal(signal.SIGUSR1, before)

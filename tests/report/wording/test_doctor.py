"""The sentences of `loadeval doctor`."""

from __future__ import annotations

from typing import Any

import pytest

from loadeval.analysis.doctor import CheckStatus, DoctorCode, MachineCheck
from loadeval.analysis.remark import Remark
from loadeval.report.wording.doctor import SENTENCES, check_text


def sentence_of(code: DoctorCode, **values: Any) -> str:
    return check_text(MachineCheck("", CheckStatus.OK, Remark(code, values)))


def test_every_code_has_a_sentence() -> None:
    """Each code is told apart from the others, but for what the driver says itself."""
    assert set(SENTENCES) == set(DoctorCode)
    assert len(set(SENTENCES.values())) == len(DoctorCode) - 1


@pytest.mark.parametrize(
    ("threads", "source", "text"),
    [
        (1, "OMP_NUM_THREADS", "up to 1 thread in the training process (OMP_NUM_THREADS=1)"),
        (8, None, "up to 8 threads in the training process (one per CPU); in each worker"),
    ],
)
def test_threads(threads: int, source: str | None, text: str) -> None:
    """Where the number is from; with one thread there is nothing to say of other libraries."""
    sentence = sentence_of(DoctorCode.THREADS, threads=threads, threads_from=source)
    assert text in sentence
    assert ("other libraries" in sentence) is (threads > 1)


def test_batches_are_counted_as_they_are_named() -> None:
    """Prefetched ones and the one in the step make up the number that is told."""
    text = sentence_of(
        DoctorCode.SHARED_MEMORY_TOO_SMALL,
        free_bytes=64_000_000,
        total_bytes=64_000_000,
        batches=3,
        workers=1,
        prefetch=2,
        batch_bytes=32_000_000,
        needed_bytes=96_000_000,
    )
    assert text.startswith(
        "64.0 MB free of 64.0 MB; 3 batches of 32.0 MB (1 worker x 2 prefetched, and the one in "
        "the step) need 96.0 MB: make it larger (--shm-size"
    )


def test_what_fills_memory() -> None:
    """What is taken now comes first, then what comes on top and how long that goes on."""
    taken = {"available_bytes": 36e9, "memory_bytes": 40e9, "process_bytes": 10e9, "workers": 1}
    taken |= {"worker_bytes": 2e9, "batches": 3, "batch_bytes": 5e8, "needed_bytes": 13.5e9}
    kept = {"kept_bytes": 1e6, "fills_batches": 22_500, "fills_epochs": 22.5, "fills_ns": 2250e9}
    assert sentence_of(DoctorCode.MEMORY_FILLS, **taken, **kept).startswith(
        "36.0 GB available of 40.0 GB; training with 10.0 GB, 1 worker with 2.00 GB each and 3 "
        "batches of 500 MB need 13.5 GB, and workers keep 1.00 MB more of each batch: after 22,500 "
        "batches (22.5 epochs, "
    )
    alone = sentence_of(DoctorCode.MEMORY, **{**taken, "workers": 0, "worker_bytes": None})
    assert "training with 10.0 GB, and 3 batches" in alone


def test_each_start_method_has_its_price() -> None:
    """One that is not known has none to tell."""
    for method in ("fork", "forkserver", "spawn"):
        assert sentence_of(DoctorCode.START_METHOD, start_method=method).startswith(
            f"{method}: workers "
        )
    assert sentence_of(DoctorCode.START_METHOD, start_method="new") == "new: its cost is not known"


def test_what_is_not_known_is_left_out() -> None:
    """CUDA, GPUs, a version, a limit."""
    files = {"limit": 1024, "batches": 129, "workers": 64, "prefetch": 2}
    files |= {"tensors": 8, "needed": 1160, "suggested": 2320}
    for most, allowed in ((4096, " (up to 4,096 allowed)"), (None, "")):
        text = sentence_of(DoctorCode.OPEN_FILES_TOO_FEW, **files, most=most)
        assert f"need 1,160: run ulimit -n 2320{allowed}, or" in text
    none = {"version": "550.1", "cuda_major": None, "cuda_minor": None, "gpus": None}
    assert sentence_of(DoctorCode.DRIVER, **none) == "550.1: no GPU"
    full = none | {"cuda_major": 12, "cuda_minor": 4, "gpus": "2 x NVIDIA H100"}
    assert sentence_of(DoctorCode.DRIVER, **full) == "550.1, CUDA up to 12.4: 2 x NVIDIA H100"
    nvml = {"package": "nvidia-ml-py", "version": None}
    assert sentence_of(DoctorCode.NVML, **nvml) == "nvidia-ml-py of unknown version"

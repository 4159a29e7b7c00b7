"""What is known of library functions: data in forms that are slow to read, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from loadeval.findings.inside import remedy_for, slow_format
from tests.inside.test_blockage import LINE, seen


@pytest.mark.parametrize(
    ("function", "do"),
    [
        ("pathlib.Path.glob", "list the folder once, in __init__"),
        ("scipy.signal._signaltools.resample", "use resample_poly, or pad to a fast length"),
        ("iternext", "keep the list of keys"),
    ],
)
def test_functions_with_a_remedy(function: str, do: str) -> None:
    remedy: Any = remedy_for(function)
    assert (remedy.do, remedy.form) == (do, "")


@pytest.mark.parametrize("function", ["", "train.decode", "scipy.signal.resample_poly"])
def test_of_other_functions_nothing_is_known(function: str) -> None:
    assert remedy_for(function) is None


@pytest.mark.parametrize(
    ("function", "do"),
    [
        ("tarfile._FileInFile.readinto", "read members as they come, or unpack the archive once"),
        ("tarfile.open", "open the file once in each worker, and keep it"),
        ("gzip.GzipFile.read", "store arrays uncompressed, mapped"),
        ("torch.serialization.load", None),  # a part of a file may be what is used
    ],
)
def test_members_of_archives_are_read_in_order_or_unpacked(function: str, do: str | None) -> None:
    remedy = remedy_for(function)
    assert (remedy and remedy.do) == do


@pytest.mark.parametrize(
    ("function", "form"),
    [
        ("numpy.lib._npyio_impl.NpzFile.__getitem__", "a compressed archive is unpacked"),
        ("json.loads", "text is parsed"),
        ("h5py._hl.files.File.__init__", "a file with an index is opened"),
    ],
)
def test_functions_tell_the_form_of_the_data(function: str, form: str) -> None:
    found: Any = slow_format(seen({"": 100}, calls={function: 90}), None)
    assert (found.remedy.form, found.name, found.share) == (form, f"{LINE} > {function}", 0.9)


@pytest.mark.parametrize(
    ("calls", "is_slow"),
    [
        ({"json.loads": 39}, False),
        ({"json.loads": 21, "csv.DictReader.__next__": 20}, True),  # of one form
        ({"PIL.Image.Image.convert": 90}, False),
    ],
)
def test_a_form_is_slow_that_takes_much_of_loading(calls: dict[str, int], is_slow: bool) -> None:
    assert (slow_format(seen({"": 100}, calls=calls), None) is not None) is is_slow


@pytest.mark.parametrize(
    ("read_bytes", "batch_bytes", "times"),
    [
        (2_000_000, 100_000, 20),
        (700_000, 100_000, None),  # not much more than is used
        (-1, 100_000, None),
    ],
)
def test_far_more_is_read_than_used(
    read_bytes: int, batch_bytes: float | None, times: float | None
) -> None:
    found = slow_format(seen({"": 100}, read_bytes=read_bytes), batch_bytes)
    assert (found and found.amplification) == times
    if found:
        assert (found.remedy.form, found.share) == ("far more is read than used", 0.95)


@pytest.mark.parametrize(
    ("function", "do"),
    [
        ("torch.serialization.load", "save view.clone(), or torch.load(path, mmap=True)"),
        ("numpy.fromfile", "read only what is used"),
    ],
)
def test_of_files_that_are_far_too_large_the_function_tells_what_to_do(
    function: str, do: str
) -> None:
    calls = {function: 90}
    found: Any = slow_format(seen({"": 100}, calls=calls, read_bytes=2_000_000), 100_000)
    assert (found.remedy.do, found.amplification) == (do, 20)

"""What NVIDIA's driver says, by a library that answers in its place."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from loadeval.probes.gpu import MISMATCH, NO_DRIVER, Driver, driver

if TYPE_CHECKING:
    from pathlib import Path

COMPILER = shutil.which("cc")
ASK = """
import dataclasses
from loadeval.probes.gpu import driver
print(dataclasses.astuple(driver()))
"""
LIBRARY = """
#include <stdlib.h>
#include <string.h>
static int code(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
int nvmlInitWithFlags(unsigned flags) { return code("INIT"); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "Said By The Library"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return code("COUNT"); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(size_t)(index + 1);
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    strcpy(name, "NVIDIA H100");
    return 0;
}
int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    strcpy(version, "550.54.15");
    return 0;
}
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12040; return 0; }
int nvmlGpmQueryDeviceSupport(void *device, unsigned *support) {
    support[1] = 1;  /* behind its version */
    return code("GPM");
}
"""
NOT_SUPPORTED, NO_PERMISSION = 3, 4
DRIVER_NOT_LOADED, VERSION_MISMATCH, UNKNOWN = 9, 18, 999


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libnvidia-ml.so.1."""
    if COMPILER is None:
        pytest.skip("there is no C compiler here")
    folder = tmp_path_factory.mktemp("library")
    (folder / "stub.c").write_text(LIBRARY)
    command = [COMPILER, "-shared", "-fPIC", "-o", "libnvidia-ml.so.1", "stub.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def asked(library: Path, **codes: int) -> Driver:
    """What a process finds that loads `library`, whose functions fail with the given codes."""
    failing = {name: str(code) for name, code in codes.items()}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | failing | {"LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    return Driver(*ast.literal_eval(done.stdout))


def test_a_driver(library: Path) -> None:
    """Its version, the CUDA that it runs, and each GPU."""
    names = ("NVIDIA H100", "NVIDIA H100")
    assert asked(library) == Driver("550.54.15", (12, 4), names, (True, True))


def test_a_gpu_without_gpm(library: Path) -> None:
    """That it has none is known, unless the driver fails to say."""
    assert asked(library, GPM=NOT_SUPPORTED).gpm == (False, False)
    assert asked(library, GPM=UNKNOWN).gpm == (None, None)


def test_a_driver_that_is_not_loaded(library: Path) -> None:
    """As good as none."""
    assert asked(library, INIT=DRIVER_NOT_LOADED) == Driver(missing=NO_DRIVER)


def test_a_library_of_another_version(library: Path) -> None:
    """Something must be done about it."""
    assert asked(library, INIT=VERSION_MISMATCH) == Driver(missing=MISMATCH, broken=True)


def test_a_driver_that_fails(library: Path) -> None:
    """Its own words are the reason."""
    for codes in ({"INIT": NO_PERMISSION}, {"COUNT": NO_PERMISSION}):
        found = asked(library, **codes)
        assert found.version is None
        assert not found.broken
        assert found.missing


def test_this_machine() -> None:
    """There is a driver, or there is a reason why not."""
    found = driver()
    assert (found.version is None) is (found.missing is not None)

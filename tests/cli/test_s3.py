"""A job whose logs are in a bucket, of a real server that speaks S3."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import fsspec  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer

from tests.cli.commands import runner
from tests.cli.test_ranks import folder_of, waits
from tests.runs.ranks import runs_of, train

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

URL = "s3://bucket/runs/job"


@pytest.fixture(name="job", scope="module")
def _job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(runs_of(train(waits()), 2), tmp_path_factory.mktemp("here") / "job")


@pytest.fixture(autouse=True, scope="module")
def _bucket(job: Path) -> Iterator[None]:
    """Holds `job` at URL; credentials and the server are in the environment, as anyone has them."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patched.setenv("AWS_ACCESS_KEY_ID", "test")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
        bucket = fsspec.filesystem("s3", skip_instance_cache=True)
        bucket.mkdir("bucket")
        bucket.put(f"{job}/", f"{URL}/", recursive=True)
        yield
    server.stop()


@pytest.mark.parametrize("command", ["compare", "show"])
def test_a_job_in_a_bucket_is_told_as_one_here(job: Path, command: str) -> None:
    there = runner(command)(URL)
    assert there[0] == 0
    assert there[1].replace(URL, "JOB") == runner(command)(job)[1].replace(str(job), "JOB")


def test_json_of_a_job_in_a_bucket_has_its_ranks() -> None:
    document = json.loads(runner("compare")(URL, "--json")[1])
    assert document["job"]["stragglers"]["ranks"] == [2]


def test_the_page_of_a_job_in_a_bucket(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert runner("report")(URL, "-o", page)[0] == 0
    assert '<section id="ranks"' in page.read_text(encoding="utf-8")


def test_one_rank_of_a_job_in_a_bucket() -> None:
    assert runner("show")(f"{URL}/rank1.jsonl")[0] == 0


def test_a_bucket_that_is_not_there_is_one_error() -> None:
    code, _, err = runner("show")("s3://nowhere/job")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("Error: ")
    assert "s3://nowhere/job" in err


def test_a_job_in_a_bucket_is_watched() -> None:
    code, out, _ = runner("watch")(URL)
    assert code == 0
    assert out.startswith("4 ranks ended after 17 s")


def test_the_page_of_a_bucket_is_written_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert runner("report")(URL)[0] == 0
    assert (tmp_path / "job.html").exists()

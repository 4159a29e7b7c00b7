"""WebDataset, with real shards of real JPEGs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import webdataset as wds  # type: ignore[import-untyped]  # it ships no types
from torch.utils.data import DataLoader, IterableDataset

from loadeval import LoaderEvaluator
from tests.adapters.loaders import adapter_of, contract, counted, describe
from tests.images import FILES

# WebDataset leaves the shard open when an epoch is broken off.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedReader:ResourceWarning")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two shards of 20 crops of a photograph, each with a class."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(2):
        with wds.TarWriter(str(folder / f"{shard}.tar")) as writer:
            for number in range(shard * 20, shard * 20 + 20):
                key = f"{number:04d}"
                writer.write({"__key__": key, "jpg": FILES[number], "cls": number % 10})
    return [str(folder / f"{shard}.tar") for shard in range(2)]


def decoded(shards: list[str]) -> Any:
    dataset = wds.WebDataset(shards, shardshuffle=False)
    return dataset.decode("torchrgb").to_tuple("jpg", "cls")


def test_the_shards_of_a_dataset_in_a_loader(shards: list[str]) -> None:
    dataset = wds.WebDataset(shards, shardshuffle=False)
    for loader in (DataLoader(dataset), web_loader(dataset)):
        assert describe(loader).shards == 2


def batched(shards: list[str]) -> Any:
    return decoded(shards).batched(8)


def web_loader(dataset: Any, **options: Any) -> Any:
    return wds.WebLoader(dataset, **{"batch_size": None, "num_workers": 1, **options})


TestLoaders = contract(
    adapter_of("webdataset"),
    given="shards",
    pipeline=batched,
    web_loader=lambda shards: wds.WebLoader(decoded(shards), batch_size=8),
    batched_again=lambda shards: web_loader(batched(shards)).unbatched().batched(5),
    persistent_workers=lambda shards: web_loader(batched(shards), persistent_workers=True),
    with_epoch=lambda shards: web_loader(batched(shards), persistent_workers=True).with_epoch(7),
    raw_samples=lambda shards: wds.WebDataset(shards, shardshuffle=False),
)


def test_the_dataloader_inside_is_described(shards: list[str]) -> None:
    dataset = batched(shards)
    info = describe(wds.WebLoader(dataset, batch_size=None, num_workers=2, prefetch_factor=3))
    inside = describe(DataLoader(dataset, batch_size=None, num_workers=2, prefetch_factor=3))
    assert info.backend == "webdataset.compat.WebLoader"
    assert info.adapter.endswith(".WebDatasetAdapter")
    assert (info.workers, info.prefetch_depth, info.batch_size, info.length) == (2, 6, 8, None)
    assert (info.pinned, info.start_method) == (inside.pinned, inside.start_method)


def test_a_pipeline_works_in_this_process(shards: list[str]) -> None:
    info = describe(batched(shards))
    assert info.backend == "webdataset.compat.WebDataset"
    assert (info.workers, info.prefetch_depth, info.batch_size) == (0, 0, 8)


class Numbers(IterableDataset[Any]):
    """A source of the program's own."""

    urls = "pipe:cat {0..9}.tar"

    def __iter__(self) -> Iterator[Any]:
        return iter(range(10))


@pytest.mark.parametrize("source", [Numbers(), list(range(10))])
def test_the_shards_of_a_source_of_the_users_are_unknown(source: Any) -> None:
    info = describe(wds.DataPipeline(source, wds.batched(4)))
    assert (info.shards, info.batch_size, info.workers) == (None, 4, None)


def test_a_queue_is_told_in_batches(shards: list[str]) -> None:
    """Its queue holds fewer or more batches where they are made anew behind the DataLoader."""
    loader = wds.WebLoader(batched(shards), batch_size=None, num_workers=2)
    info = describe(loader.unbatched().shuffle(20).batched(16))
    assert (info.prefetch_depth, info.batch_size) == (2, 16)


def test_what_a_stage_of_the_users_makes_of_samples_is_unknown(shards: list[str]) -> None:
    """A stage that is not WebDataset's may group samples, and read ahead: neither is told."""

    def pairs(samples: Iterator[Any]) -> Iterator[Any]:
        return zip(samples, samples, strict=True)

    info = describe(decoded(shards).compose(pairs))
    assert (info.workers, info.prefetch_depth, info.batch_size) == (None, None, None)
    info = describe(decoded(shards).compose(pairs).batched(4))
    assert (info.workers, info.prefetch_depth, info.batch_size) == (None, None, 4)
    loader = wds.WebLoader(batched(shards), batch_size=None, num_workers=2)
    info = describe(loader.unbatched().compose(pairs))
    assert (info.workers, info.prefetch_depth, info.batch_size) == (2, None, None)


def test_a_length_is_known_once_it_is_set(shards: list[str]) -> None:
    loader = wds.WebLoader(batched(shards), batch_size=None)
    assert describe(loader).length is None
    sized = loader.with_length(5, silent=True)
    assert describe(sized).length == 5
    assert len(LoaderEvaluator(sized)) == 5
    loader = wds.WebLoader(batched(shards), batch_size=None).with_epoch(7)
    assert describe(loader).length == 7
    assert len(list(LoaderEvaluator(loader, mode="replay", num_cached_batches=2))) == 7
    assert describe(wds.WebLoader(batched(shards), batch_size=None).repeat()).length is None


def test_a_sample_is_one_sample(shards: list[str]) -> None:
    assert set(counted(decoded(shards))) == {1}
    by_name = wds.WebDataset(shards, shardshuffle=False).decode("rgb")
    assert set(counted(by_name)) == {1}
    assert set(counted(wds.WebLoader(batched(shards), batch_size=None).unbatched())) == {1}


def test_a_batch_is_counted_by_its_keys_or_arrays(shards: list[str]) -> None:
    stages = wds.SimpleShardList(shards), wds.tarfile_to_samples(), wds.batched(16)
    assert counted(wds.DataPipeline(*stages)) == [16, 16, 8]
    assert counted(batched(shards)) == [8] * 5
    assert counted(wds.WebLoader(decoded(shards), batch_size=16)) == [16, 16, 8]


def test_the_stages_of_the_dataloader_inside_are_in_the_run(shards: list[str]) -> None:
    """Each batch has its fetch, whichever process made it."""
    for workers in (0, 1):
        loader = web_loader(batched(shards), num_workers=workers)
        with LoaderEvaluator(loader, stages=True, probes=()) as evaluator:
            served = len(list(evaluator))
        stages = evaluator.recorded().stages
        assert len(stages) == served == 5
        assert (stages.fetch_ns > 0).all()

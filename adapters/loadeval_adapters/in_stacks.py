"""What a thread does that is in a function of a framework, as seen from outside the process.

For `loadeval attach` and the search for hangs, which import no framework: so does this module.
"""

FETCH = "torch/utils/data/_utils/fetch.py"
DATALOADERS = (
    # (what users call it, the files of its loader and of its workers)
    ("DataLoader", "torch/utils/data/dataloader.py", "torch/utils/data/_utils/worker.py"),
    (
        "StatefulDataLoader",
        "torchdata/stateful_dataloader/stateful_dataloader.py",
        "torchdata/stateful_dataloader/worker.py",
    ),
)

IN_STACKS = (
    # (the end of its file's path, function, what a thread does in it, the line where, the loader)
    *(
        row
        for name, loader, worker in DATALOADERS
        for row in (
            (loader, "__next__", "waits", "", name),
            (loader, "_get_data", "awaits", "", name),
            (loader, "__iter__", "starts", "", name),
            (worker, "_worker_loop", "loads", "", name),
            (worker, "_worker_loop", "asks", "index_queue.get(", name),
            (worker, "_worker_loop", "sends", "data_queue.put(", name),
        )
    ),
    (FETCH, "fetch", "fetches", "", "DataLoader"),
    (FETCH, "fetch", "collates", "self.collate_fn(", "DataLoader"),
    ("torchdata/nodes/base_node.py", "__next__", "waits", "", "torchdata.nodes"),
    ("spdl/pipeline/_pipeline.py", "__next__", "waits", "", "SPDL pipeline"),
    ("spdl/pipeline/_subprocess_worker_pool.py", "_worker_loop", "loads", "", "SPDL pipeline"),
    ("nvidia/dali/plugin/pytorch/__init__.py", "__next__", "waits", "", "DALI iterator"),
    ("nvidia/dali/plugin/base_iterator.py", "__next__", "waits", "", "DALI iterator"),
    ("nvidia/dali/pipeline.py", "run", "waits", "", "DALI pipeline"),
    ("nvidia/dali/pipeline.py", "outputs", "waits", "", "DALI pipeline"),
    ("webdataset/pipeline.py", "iterator", "waits", "", "WebDataset"),
    ("webdataset/pipeline.py", "iterator", "fetches", "", "WebDataset"),
    ("datasets/iterable_dataset.py", "__iter__", "waits", "", "datasets.IterableDataset"),
    ("datasets/iterable_dataset.py", "__iter__", "fetches", "", "datasets.IterableDataset"),
    ("grain/_src/python/data_loader.py", "__next__", "waits", "", "Grain DataLoader"),
    ("ray/data/_internal/block_batching/iter_batches.py", "_iter_batches", "waits", "", "Ray Data"),
    # Loaders with threads, as SPDL's, have them of such a pool.
    ("concurrent/futures/thread.py", "_worker", "loads", "", "thread pool"),
    ("concurrent/futures/thread.py", "_worker", "asks", "work_queue.get(", "thread pool"),
    # Who waits for another process to end does not train.
    ("torch/distributed/elastic/agent/server/api.py", "_invoke_run", "launches", "", "torchrun"),
    ("torch/multiprocessing/spawn.py", "join", "launches", "", "torch.multiprocessing.spawn"),
)

VARIABLES = (
    # (the end of its file's path, function, what its variable tells, the variable)
    *(
        row
        for _, loader, worker in DATALOADERS
        for row in (
            (worker, "_worker_loop", "worker", "worker_id"),
            (worker, "_worker_loop", "batch", "idx"),
            (loader, "_next_data", "owed by", "worker_id"),
        )
    ),
    (FETCH, "fetch", "sample", "idx"),
    (FETCH, "<listcomp>", "sample", "idx"),  # as Python 3.10 calls what is in `fetch`
)

COLLECTIVES = (
    # (a folder, a pattern of the functions' names)
    ("torch/distributed/", r"^(?!(__init__|init_process_group|wrapper|<module>)$)"),
)

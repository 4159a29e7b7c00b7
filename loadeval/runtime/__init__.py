"""The core: times, caches and replays batches of any iterable; knows no framework."""

"""Kept batches, served again and again.

In order of reading: `cache.py` keeps the batches, `loop.py` serves them, `fresh_containers.py`
makes new containers around a batch's leaves, and `mutations.py` finds what a step has changed.
"""

"""Where a batch's loading time goes.

In order of reading: `timeline.py` puts the batches that workers timed in order, `stages.py` shares
their time among fetch, collate and transfer, `transforms.py` that of fetch among transforms,
`operators.py` among the operators and threads of a pipeline, and `lanes.py` lays a few batches out,
worker by worker, to be drawn.
"""

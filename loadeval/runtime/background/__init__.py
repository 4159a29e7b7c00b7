"""What runs beside a training.

In order of reading: `threads.py` starts and stops our threads, `metrics_thread.py` reads the
probes in one of them, and `log_queue.py` is written to the log's file by another.
"""

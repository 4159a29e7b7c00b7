"""What a command leaves behind: a folder with the logs of its processes.

In order of reading: `processes.py` says what each process did, `folder.py` finds and reads the
logs, and `protocol_steps.py` has the steps of `loadeval protocol`.
"""

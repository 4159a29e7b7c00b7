"""What a command leaves behind: a folder with the logs of its processes.

In order of reading: `processes.py` says what each process did, and `folder.py` finds and reads the
logs.
"""

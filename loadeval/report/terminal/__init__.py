"""Text for a terminal.

`screen.py` is the one screen of `compare`, `text.py` all of it (`--full`); the others are its
parts, or what another command prints.
"""

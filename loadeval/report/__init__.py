"""What is said of runs, as people and programs read it.

`build.py` makes sections of blocks, a function for each section; `text.py` prints them, `html.py`
makes one page of them that opens offline, and `charts.py` draws their charts. `as_json.py` is for
programs, and `report.py` finds out what the given runs are to each other.
"""

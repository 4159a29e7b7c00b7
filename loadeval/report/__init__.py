"""What analysis computed, as people and programs read it; computes nothing.

`wording/` has every sentence. `facts.py` says each fact once, with the places that show it, and
`tables.py` lays out tables. `terminal/` makes text of them, `figure/` draws with matplotlib,
`page/` writes one HTML file that opens offline, and `json.py` is for programs.
"""

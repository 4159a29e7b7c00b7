"""One HTML file that tells what runs found, with figures, and opens offline.

`page.py` puts the sections together and writes the file; `text.py`, `sections.py`, `ranks.py`,
`stages.py`, `whatif.py`, `findings.py` and `system_metrics.py` make the blocks of one section each.
`blocks.py` and `escaping.py` turn blocks into HTML, `plotly.py` charts into figures.
"""

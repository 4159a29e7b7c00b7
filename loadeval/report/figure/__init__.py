"""Figures by matplotlib, which is imported when the first is drawn.

`figure.py` puts charts together and saves them, `curve_figure.py` the one of `whatif`;
`bar_charts.py`, `point_charts.py`, `curve_charts.py` and `stage_charts.py` say what is in a chart,
for the page too, and `drawing.py` draws it.
"""

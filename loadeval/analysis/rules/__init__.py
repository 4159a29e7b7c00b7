"""Findings: one thing that is wrong with a run, what shows it, what it costs and what to change.

In order of reading: `finding.py` is what a rule gives, `case.py` what it is given, `diagnosis.py`
the list of rules and their order; one file for each group of rules. `fixes.py` and `gains.py`
predict what each change would bring by itself. `plan.py` puts them in order, on top of each other,
as the actions and the plan that `actions.py` has.
"""

"""Programs with a planted fault, and what they are made of, for all instruments.

In order of reading: `costs.py` is work and time, `programs.py` what a program is.
"""

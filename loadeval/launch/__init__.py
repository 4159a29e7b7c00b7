"""Measuring a program that nobody edited: `loadeval run`, and `install()` in a notebook."""

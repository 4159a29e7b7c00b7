"""Runs in the forms that other tools open: timelines, tables, scalars."""

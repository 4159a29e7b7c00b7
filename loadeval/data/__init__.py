"""Runs as plain data: columns, the lines of a run log, reading and writing it, folders of logs."""

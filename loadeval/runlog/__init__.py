"""Facts about a run: plain data, the file they are kept in, where they came from."""

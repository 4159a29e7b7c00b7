"""Pure functions over a Run: they never draw, print or read a clock."""

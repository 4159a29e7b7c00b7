"""A training run on real JPEGs, to try loadeval on; the one part that needs torch and Pillow."""

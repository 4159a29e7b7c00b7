"""Presents what analysis found; computes nothing."""

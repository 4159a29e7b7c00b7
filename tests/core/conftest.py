"""Loaders without workers for alternating runs."""

from tests.scripted import serial  # noqa: F401 - a fixture

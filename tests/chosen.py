"""Backends that loadeval wrote for a folder, of which two were measured."""

from __future__ import annotations

from loadeval.analysis.choice import BackendChoice, Candidate, Kind, Standing

QUICK = Candidate("quick", Standing.MEASURED, rounds={1: (90.0, 110.0), 2: (200.0, 210.0, 190.0)})
SLOW = Candidate("slow", Standing.MEASURED, rounds={1: (50.0, 51.0), 2: (100.0, 105.0, 95.0)})
ABSENT = Candidate("absent", Standing.NOT_INSTALLED, "pip install absent")
CHOICE = BackendChoice(
    folder="photos",
    kind=Kind.IMAGES,
    transforms="resize 8x8",
    files=10,
    classes=2,
    measured=10,
    batch_size=4,
    cpus=(1, 2),
    reference="slow",
    candidates=(SLOW, ABSENT, QUICK),
)

"""Trains a small YOLO with ultralytics, on images made here: `train_ultralytics.py WORKERS`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["YOLO_VERBOSE"] = "false"
os.environ["YOLO_OFFLINE"] = "true"
folder = tempfile.TemporaryDirectory()
os.environ["YOLO_CONFIG_DIR"] = folder.name

import numpy as np
from PIL import Image
from ultralytics import YOLO

from bench.programs.shared import begin, show, show_parameters

SIZE, FILE_SIZE, SQUARE, TRAINING, VALIDATION = 64, 256, 96, 320, 8
MODEL = """
nc: 2
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C2f, [16, True]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C2f, [16, True]]
head:
  - [[2, 4], 1, Detect, [nc]]
"""


def made(place: Path) -> str:
    """A data set of squares in noise, and the file that names it."""
    random = np.random.default_rng(0)
    for part, count in {"train": TRAINING, "val": VALIDATION}.items():
        for kind in ("images", "labels"):
            (place / kind / part).mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 100, (FILE_SIZE, FILE_SIZE, 3)).astype(np.uint8)
            left, top = random.integers(0, FILE_SIZE - SQUARE, 2)
            pixels[top : top + SQUARE, left : left + SQUARE, number % 2] = 255
            Image.fromarray(pixels).save(place / "images" / part / f"{number}.png")
            box = (left + SQUARE / 2, top + SQUARE / 2, SQUARE, SQUARE)
            text = " ".join(str(value / FILE_SIZE) for value in box)
            (place / "labels" / part / f"{number}.txt").write_text(f"{number % 2} {text}\n")
    data = place / "data.yaml"
    data.write_text(f"path: {place}\ntrain: images/train\nval: images/val\nnames: [red, green]\n")
    (place / "model.yaml").write_text(MODEL)
    return str(data)


def show_batch(trainer: Any) -> None:
    """Print the losses of a batch."""
    show("losses", trainer.loss, *trainer.loss_items.values())


begin()
with folder:
    place = Path(folder.name)
    data = made(place / "squares")
    model: Any = YOLO(place / "squares" / "model.yaml")
    model.add_callback("on_train_batch_end", show_batch)
    model.train(
        data=data,
        epochs=4,
        imgsz=SIZE,
        batch=4,
        workers=int(sys.argv[1]),
        device="cpu",
        project=str(place / "runs"),
        optimizer="SGD",
        amp=False,
        plots=False,
        verbose=False,
        save=False,
    )
    for name, value in model.trainer.metrics.items():
        show(name, value)
    show_parameters(model.trainer.model)

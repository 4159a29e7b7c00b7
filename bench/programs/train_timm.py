"""Trains a vision transformer with timm, in the way of its train.py: `train_timm.py WORKERS`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import timm
import timm.data
import timm.optim
import timm.scheduler
import timm.utils
import torch
from PIL import Image
from torch import nn

from bench.programs.shared import begin, show, show_parameters

SIZE, CLASSES, TRAINING, VALIDATION, EPOCHS = 32, 4, 160, 16, 2

begin()
timm.utils.random_seed(42, 0)
with tempfile.TemporaryDirectory() as folder:
    random = np.random.default_rng(0)
    for part, count in {"train": TRAINING, "validation": VALIDATION}.items():
        for label in range(CLASSES):
            place = Path(folder) / part / f"class{label}"
            place.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 256, (24, 32, 3)).astype(np.uint8)
                Image.fromarray(pixels).resize((800, 600)).save(place / f"{number}.jpg")
    model = timm.create_model("test_vit", num_classes=CLASSES, img_size=SIZE)
    loader_train, loader_eval = (
        timm.data.create_loader(
            timm.data.create_dataset("", folder, split=part, is_training=part == "train"),
            input_size=(3, SIZE, SIZE),
            batch_size=4,
            is_training=part == "train",
            no_aug=True,
            use_prefetcher=True,
            num_workers=int(sys.argv[1]),
            persistent_workers=False,
            device=torch.device("cpu"),
        )
        for part in ("train", "validation")
    )
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9)
    lr_scheduler, epochs = timm.scheduler.create_scheduler_v2(optimizer, num_epochs=EPOCHS)
    train_loss_fn = validate_loss_fn = nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        if hasattr(loader_train.sampler, "set_epoch"):
            loader_train.sampler.set_epoch(epoch)
        losses_m = timm.utils.AverageMeter()
        model.train()
        for images, targets in loader_train:
            loss = train_loss_fn(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses_m.update(loss.item(), images.size(0))
            show("loss", loss)
        model.eval()
        with torch.no_grad():
            for images, targets in loader_eval:
                show("validation", validate_loss_fn(model(images), targets))
        lr_scheduler.step(epoch + 1, losses_m.avg)
        show("epoch", losses_m.avg)
    show_parameters(model)

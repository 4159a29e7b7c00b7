"""Segments volumes with MONAI, in the way of its tutorials: `train_monai.py WORKERS`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import DataLoader, Dataset, create_test_image_3d, decollate_batch
from monai.inferers import sliding_window_inference
from monai.losses import DiceLoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import (
    AsDiscrete,
    Compose,
    EnsureChannelFirstd,
    LoadImaged,
    RandCropByPosNegLabeld,
    RandRotate90d,
    ScaleIntensityd,
)
from monai.utils import set_determinism

from bench.programs.shared import begin, show, show_parameters

KEYS = ["img", "seg"]
SIZE, TRAINING, VALIDATION, CROPS = 32, 160, 4, 2

begin()
set_determinism(seed=0)
with tempfile.TemporaryDirectory() as folder:
    files: list[dict[str, str]] = []
    random = np.random.RandomState(0)
    for number in range(TRAINING + VALIDATION):
        volumes = create_test_image_3d(
            SIZE, SIZE, SIZE, num_objs=4, rad_max=8, num_seg_classes=1, random_state=random
        )
        names = {key: str(Path(folder) / f"{key}{number}.npy") for key in KEYS}
        for key, volume in zip(KEYS, volumes, strict=True):
            np.save(names[key], volume)
        files.append(names)
    load: list[Any] = [LoadImaged(KEYS), EnsureChannelFirstd(KEYS), ScaleIntensityd("img")]
    crop = RandCropByPosNegLabeld(
        KEYS, label_key="seg", spatial_size=[16, 16, 16], pos=1, neg=1, num_samples=CROPS
    )
    train_ds = Dataset(files[:TRAINING], Compose([*load, crop, RandRotate90d(KEYS, prob=0.5)]))
    val_ds = Dataset(files[TRAINING:], Compose(load))
    train_loader = DataLoader(train_ds, batch_size=2, shuffle=True, num_workers=int(sys.argv[1]))
    val_loader = DataLoader(val_ds, batch_size=1)
    model = UNet(3, in_channels=1, out_channels=1, channels=(4, 8, 16), strides=(2, 2))
    loss_function = DiceLoss(sigmoid=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    dice_metric = DiceMetric(include_background=True, reduction="mean")
    post_trans = Compose([AsDiscrete(threshold=0.5)])
    for _ in range(4):
        model.train()
        for batch_data in train_loader:
            inputs, labels = batch_data["img"], batch_data["seg"]
            optimizer.zero_grad()
            loss = loss_function(model(inputs), labels)
            loss.backward()
            optimizer.step()
            show("loss", loss)
        model.eval()
        with torch.no_grad():
            for val_data in val_loader:
                outputs = sliding_window_inference(val_data["img"], (16, 16, 16), 4, model)
                decided = [post_trans(output) for output in decollate_batch(outputs)]
                dice_metric(y_pred=decided, y=val_data["seg"])
            show("dice", dice_metric.aggregate().item())
            dice_metric.reset()
    show_parameters(model)

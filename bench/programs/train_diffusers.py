"""Trains an unconditional diffusion model, in the way of diffusers' tutorial.

`train_diffusers.py WORKERS`
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset  # type: ignore[import-untyped]
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from PIL import Image
from torch.nn import functional
from torch.utils.data import DataLoader

from bench.programs.shared import SAMPLE_S, begin, show, show_parameters

SIZE, EPOCHS = 16, 2


def transform(examples: dict[str, list[Any]]) -> dict[str, list[torch.Tensor]]:
    """Images as tensors from -1 to 1, each after a while."""
    time.sleep(SAMPLE_S * len(examples["image"]))
    pixels = [np.asarray(image.convert("RGB"), np.float32) for image in examples["image"]]
    return {"images": [torch.from_numpy(image).permute(2, 0, 1) / 127.5 - 1 for image in pixels]}


begin()
random = np.random.default_rng(0)
images = [
    Image.fromarray(random.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)) for _ in range(640)
]
dataset = Dataset.from_dict({"image": images})
dataset.set_transform(transform)
train_dataloader: Any = DataLoader(
    dataset, batch_size=4, shuffle=True, num_workers=int(sys.argv[1])
)
model: Any = UNet2DModel(
    sample_size=SIZE,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(8, 8),
    norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
noise_scheduler: Any = DDPMScheduler(num_train_timesteps=1000)
optimizer: Any = torch.optim.AdamW(model.parameters(), lr=1e-4)
lr_scheduler: Any = get_cosine_schedule_with_warmup(
    optimizer=optimizer,
    num_warmup_steps=50,
    num_training_steps=len(train_dataloader) * EPOCHS,
)
with tempfile.TemporaryDirectory() as folder:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=1, project_dir=folder)
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, lr_scheduler
    )
    for _ in range(EPOCHS):
        for batch in train_dataloader:
            clean_images = batch["images"]
            noise = torch.randn(clean_images.shape, device=clean_images.device)
            timesteps = torch.randint(
                0,
                noise_scheduler.config.num_train_timesteps,
                (clean_images.shape[0],),
                device=clean_images.device,
                dtype=torch.int64,
            )
            noisy_images = noise_scheduler.add_noise(clean_images, noise, timesteps)
            with accelerator.accumulate(model):
                noise_pred = model(noisy_images, timesteps, return_dict=False)[0]
                loss = functional.mse_loss(noise_pred, noise)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            show("loss", loss.detach())
    show_parameters(accelerator.unwrap_model(model))

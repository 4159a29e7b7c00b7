"""What makes a training the same each time, to the bit, and shows that it was."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn


def seeded(seed: int = 0) -> None:
    """Let all that follows be the same each time. CUBLAS_WORKSPACE_CONFIG is the caller's."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def show(name: str, loss: torch.Tensor) -> None:
    """Print a loss to the bit, in one piece: ranks share a file."""
    sys.stdout.write(f"{name} {float(loss.item()).hex()}\n")
    sys.stdout.flush()


def show_parameters(model: nn.Module) -> None:
    """Print a hash of all parameters, to the bit."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    sys.stdout.write(f"parameters {digest.hexdigest()}\n")
    sys.stdout.flush()

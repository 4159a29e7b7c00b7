"""A thread logs while the workers are forked, and so holds the handler's lock in each of them."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from bench.hangs.programs.training import Numbers, train

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("planted")
is_logging, may_end = threading.Event(), threading.Event()


class SlowHandler(logging.Handler):
    """Holds its lock as long as its storage takes."""

    def createLock(self) -> None:  # noqa: N802 - as logging has it
        self.lock = threading.Lock()  # type: ignore[assignment]  # logging makes its own free after a fork

    def emit(self, record: logging.LogRecord) -> None:
        if record.threadName == "monitor":
            is_logging.set()
            may_end.wait()


class Logged(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        logger.warning("sample %d", index)
        return super().__getitem__(index)


if __name__ == "__main__":
    logger.addHandler(SlowHandler())
    logger.propagate = False
    threading.Thread(target=logger.warning, args=("alive",), name="monitor", daemon=True).start()
    is_logging.wait()
    batches = iter(DataLoader(Logged(), batch_size=2, num_workers=2))
    may_end.set()
    train(batches)

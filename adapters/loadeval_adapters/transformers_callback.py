"""A callback for Hugging Face's Trainer, which measures its training loader and logs what it finds.

Imports transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from loadeval import evaluate_in_place

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

    from loadeval import LoaderEvaluator


class LoadevalCallback(TrainerCallback):
    """Measures the loader that a Trainer trains with, and logs throughput and waits by `log()`.

    So they go wherever the Trainer reports to: `trainer.add_callback(LoadevalCallback(trainer))`.
    Each `train()` is a new measurement, of which `evaluator` is the latest; None before the first.

    Args:
        trainer: the Trainer that logs.
        mode: as in `evaluate_in_place`.
        options: the other arguments of `evaluate_in_place`, such as `log_file`.
    """

    def __init__(self, trainer: Trainer, mode: str = "log", **options: Any) -> None:
        self.evaluator: LoaderEvaluator | None = None
        self._trainer, self._mode, self._options = trainer, mode, options
        self._scalars: dict[str, float] = {}

    def on_train_begin(self, *_: Any, train_dataloader: Any = None, **__: Any) -> None:
        """Measure the loader from now on; an attempt that failed before is over."""
        self._close()
        options = {"track": self._keep, **self._options}
        self.evaluator = evaluate_in_place(train_dataloader, self._mode, **options)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Log what has come since."""
        self._log()

    def on_epoch_end(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the Trainer's
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """After the last epoch, log what is known of all: then trackers end the Trainer's run."""
        if control.should_training_stop or state.global_step >= state.max_steps:
            self._close()
            self._log()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop measuring, however training ended."""
        self._close()

    def _keep(self, batches: int, scalars: dict[str, float]) -> None:
        """Keep scalars, on another thread, until the one that trains logs them."""
        self._scalars = {"loadeval/batches": batches, **scalars}

    def _log(self) -> None:
        scalars, self._scalars = self._scalars, {}
        if scalars:
            self._trainer.log(scalars)

    def _close(self) -> None:
        if self.evaluator is not None:
            self.evaluator.close()

"""A callback for Lightning, which measures the training loader and logs what it finds.

Imports lightning, or pytorch_lightning where that is what is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    from pytorch_lightning import Callback  # type: ignore[assignment]  # the same, by its other name

from loadeval import evaluate_in_place

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

    from loadeval import LoaderEvaluator


class DataLoadingMonitor(Callback):
    """Measures the loader that `fit` trains with; logs throughput and waits to the loggers.

    `Trainer(callbacks=[DataLoadingMonitor()])`. Each `fit` is a new measurement, of which
    `evaluator` is the latest; None before the first.

    Args:
        mode: as in `evaluate_in_place`.
        options: the other arguments of `evaluate_in_place`, such as `log_file`.
    """

    def __init__(self, mode: str = "log", **options: Any) -> None:
        self.evaluator: LoaderEvaluator | None = None
        self._mode, self._options = mode, options
        self._made_by: Any = None
        self._scalars: dict[str, float] = {}

    def on_fit_start(self, trainer: Trainer, _: LightningModule) -> None:
        """Measure the loader from now on, or once the module makes it: its iterator comes next."""
        source = trainer.fit_loop._data_source  # noqa: SLF001 - no public name has it before its iterator
        if source.is_module():
            self._measure_made_by(source.instance)
        else:
            self._measure(source.instance)

    def on_train_start(self, *_: Any) -> None:
        """Leave the module as it was."""
        self._restore()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Log what has come since."""
        self._log(trainer)

    def on_train_end(self, trainer: Trainer, _: LightningModule) -> None:
        """Log what is known of the whole training."""
        self._close()
        self._log(trainer)

    def on_exception(self, *_: Any) -> None:
        """Stop measuring."""
        self._restore()
        self._close()

    def _measure(self, dataloader: Any) -> None:
        options = {"track": self._keep, **self._options}
        self.evaluator = evaluate_in_place(dataloader, self._mode, **options)

    def _measure_made_by(self, module: Any) -> None:
        make = module.train_dataloader

        def train_dataloader() -> Any:
            dataloader = make()
            self._measure(dataloader)
            return dataloader

        module.train_dataloader = train_dataloader
        self._made_by = module

    def _restore(self) -> None:
        module, self._made_by = self._made_by, None
        if module is not None:
            del module.train_dataloader

    def _keep(self, batches: int, scalars: dict[str, float]) -> None:
        """Keep scalars, on another thread, until the one that trains logs them."""
        self._scalars = {"loadeval/batches": batches, **scalars}

    def _log(self, trainer: Trainer) -> None:
        scalars, self._scalars = self._scalars, {}
        for logger in trainer.loggers if scalars else []:
            logger.log_metrics(scalars, step=trainer.global_step)

    def _close(self) -> None:
        if self.evaluator is not None:
            self.evaluator.close()

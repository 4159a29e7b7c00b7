"""What `loadeval run` and `install` tell the processes that they measure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from loadeval.errors import UsageError
from loadeval.launch.loadeval_inject import ADAPTERS, FOLDER
from loadeval.runlog.run_folder.processes import REPLAYED
from loadeval.runtime.registry import registered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadeval.runlog.model import Mode

SETTINGS = "LOADEVAL_RUN_SETTINGS"
"""The variable with the RunSettings, as JSON."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How `loadeval tune -- COMMAND` tunes the training loader; see tune.

    `stops` tells whether the program is to end once it is tuned, and `width` how wide the screen
    is.
    """

    space: Mapping[str, list[Any]] = field(default_factory=dict)
    batches: int = 80
    rounds: int = 4
    trials: int = 6
    stops: bool = False
    width: int = 80


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What `loadeval run` tells the processes of its command, by their environment.

    `mode` is that of the training loader; others are logged. `batches` is as in LoaderEvaluator.
    `tune` is None where nothing is tuned.
    """

    folder: str
    mode: Mode = "log"
    batches: int | None = None
    redact: bool = False
    tune: TuneOptions | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RunSettings:
        """The settings in `environment`. Raises KeyError or ValueError where there are none."""
        options = json.loads(environment.get(SETTINGS, "{}"))
        tune = options.pop("tune", None)
        tune_options = None if tune is None else TuneOptions(**tune)
        return cls(environment[FOLDER], **options, tune=tune_options)

    def environment(self) -> dict[str, str]:
        """The environment variables that hold these settings."""
        options = {name: value for name, value in asdict(self).items() if name != "folder"}
        return {
            FOLDER: self.folder,
            SETTINGS: json.dumps(options),
            ADAPTERS: ",".join(
                f"{name}={point.module}:{point.attr}" for name, point in registered().items()
            ),
        }

    @property
    def suffix(self) -> str:
        """The end of all file names."""
        return REPLAYED if self.mode == "replay" else ""


def check(settings: RunSettings) -> None:
    """Raises UsageError for options that do not go together."""
    if settings.batches is not None and settings.mode != "alternate":
        raise UsageError(
            f"batches={settings.batches} works only in mode 'alternate', and the mode is "
            f"{settings.mode!r}; pass mode='alternate', or omit batches"
        )
    if settings.mode not in {"log", "replay", "alternate"}:
        raise UsageError(f"mode is {settings.mode!r}; expected 'log', 'replay' or 'alternate'")
    if settings.batches is not None and settings.batches < 1:
        raise UsageError(f"batches is {settings.batches}; expected a whole number, 1 or more")

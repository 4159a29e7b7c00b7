"""Why nothing is known of what happened inside a loader."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from loadeval.analysis.remark import Remark

if TYPE_CHECKING:
    from loadeval.runlog.model import Run


class NoStages(Enum):
    """Why a run has no stages."""

    NOT_ASKED_FOR = "not asked for"
    NOT_RECORDED = "not recorded"
    ENDED = "looking into the loader ended"
    NO_BATCH = "no batch"
    LOADER = "loader not looked into"


def why_no_stages(run: Run) -> Remark | None:
    """Why `run` has no stages; None where it has, or operators, or where it replayed."""
    if run.stages or run.operators or run.header.mode == "replay":
        return None
    told = next((one.message for one in run.events if one.kind == "stages missing"), None)
    if told is not None:
        return Remark(NoStages.ENDED, {"message": told})
    settings = run.header.settings
    if "stages" not in settings:
        return Remark(NoStages.NOT_RECORDED)
    asked = settings["stages"]
    if not (run.header.mode == "alternate" if asked is None else asked):
        return Remark(NoStages.NOT_ASKED_FOR)
    if not run.batches:
        return Remark(NoStages.NO_BATCH)
    return Remark(NoStages.LOADER, {"loader": run.header.loader.backend})

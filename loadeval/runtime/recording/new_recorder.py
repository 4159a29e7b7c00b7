"""Makes the Recorder of a run: its header, and its log where the settings name a file."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from loadeval.data.lines import Header
from loadeval.data.log import RunLog
from loadeval.runtime.recording.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadeval.data.lines import CacheInfo, Line, LoaderInfo
    from loadeval.runtime.background.metrics_thread import Probes
    from loadeval.runtime.recording.stages import LoaderStages
    from loadeval.runtime.settings import EvaluatorSettings


def new_recorder(  # noqa: PLR0913 - nearly all by keyword
    settings: EvaluatorSettings,
    info: LoaderInfo,
    *,
    name: str,
    facts: dict[str, Any],
    environment: dict[str, Any],
    probes: Probes,
    cache: CacheInfo | None = None,
    stages: Callable[[], LoaderStages | None],
    tracking: Any = None,
) -> Recorder:
    """A Recorder with the header of a run, and a log if `settings` name a file.

    `facts` are the settings that the header tells. `stages` makes what looks into the loader.
    Raises RunLogError if the log exists or cannot be written.
    """
    redact: Callable[[Line], Line] = _as_it_is
    if settings.redact:
        from loadeval.data.redaction import redacted, run_salt  # noqa: PLC0415 - few runs need it

        redact = partial(redacted, salt=run_salt())
    header = Header(
        run_id=uuid.uuid4().hex,
        name=name,
        mode=settings.mode,
        created=datetime.now(timezone.utc).isoformat(),
        unit=settings.unit,
        warmup=settings.warmup_for(info.prefetch_depth),
        loader=info,
        settings=facts,
        environment=environment,
        cache=cache,
    )
    header = cast("Header", redact(header))
    path = settings.log_file
    log = None if path is None else RunLog(path, header, overwrite=settings.overwrite)
    inside = stages if settings.looks_inside else (lambda: None)
    return Recorder(header, log, settings.clock, probes, inside, redact=redact, tracking=tracking)


def _as_it_is(line: Line) -> Line:
    return line

"""The page as a whole: sections in their order, put into the template; and onto the disk."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadeval.data.environment import own_version
from loadeval.errors import UsageError
from loadeval.report.extra import check_installed
from loadeval.report.formatting import printable, short_name, shortened
from loadeval.report.page.blocks import Figure
from loadeval.report.page.escaping import script_json
from loadeval.report.page.findings import findings
from loadeval.report.page.plotly import PlotlyJs, policy
from loadeval.report.page.ranks import ranks
from loadeval.report.page.sections import (
    distribution,
    epoch_starts,
    iteration_time,
    outliers,
    throughput,
    timeline,
)
from loadeval.report.page.stages import inside_the_loader
from loadeval.report.page.system_metrics import system_metrics
from loadeval.report.page.text import backends, baseline, reproduce, settings, top
from loadeval.report.page.whatif import whatif
from loadeval.report.palette import THEMES, css_classes, css_variables
from loadeval.report.wording.runs import report_headline

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from jinja2 import Environment

    from loadeval.analysis.report import Report
    from loadeval.report.page.blocks import Block, Section

EXTENSION = ".html"
PACKAGE = "loadeval.report.page"
GENERATOR = "loadeval report"
OURS = f'<meta name="generator" content="{GENERATOR} '
"""What each page has near its beginning, and nothing else is likely to."""
BEGINNING = 4096
LONGEST_TITLE = 100
LONGEST_TEXT = 10_000


def sections(report: Report, runs: Sequence[Path], output: Path) -> list[Section]:
    """The parts of the page below the verdict, in their order."""
    return [
        *baseline(report),
        *ranks(report),
        throughput(report),
        iteration_time(report),
        *inside_the_loader(report),
        *whatif(report),
        findings(report),
        timeline(report),
        epoch_starts(report),
        outliers(report),
        distribution(report),
        system_metrics(report),
        *backends(report),
        settings(report),
        reproduce(report, runs, output),
    ]


def page_of(report: Report, runs: Sequence[Path], output: Path) -> str:
    """The page as text. `runs` are the files that it is of, and `output` is where it goes.

    Raises UsageError where a page cannot hold the installed plotly.
    """
    named = [replace(run, name=short_name(run.name)) for run in report.runs]
    report = replace(report, runs=tuple(named))
    parts = sections(report, runs, output)
    return rendered(report_headline(report), [path.name for path in runs], top(report), parts)


def rendered(
    headline: str, about: Sequence[str], first: Sequence[Block], parts: Sequence[Section]
) -> str:
    """A page as text: above its headline what it is `about`, below it the blocks `first`.

    Raises UsageError where a page cannot hold the installed plotly.
    """
    from markupsafe import Markup  # noqa: PLC0415 - needed only to write a page

    plotly = PlotlyJs.installed()
    shown = [block for section in parts for block in section.blocks if isinstance(block, Figure)]
    css, script = _stylesheet(shown), _asset("page.js")
    figures = {figure.name: {"data": figure.data, "layout": figure.layout} for figure in shown}
    ours = {
        "css": css,
        "themes": script_json(THEMES),
        "figures": script_json(figures),
        "plotly": plotly.text,
        "script": script,
    }
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            policy=policy([plotly.text, script]),
            generator=f"{GENERATOR} {own_version()}",
            title=f"{shortened(headline, LONGEST_TITLE)} (loadeval)",
            files=", ".join(map(short_name, about)),
            headline=headline,
            top=first,
            sections=parts,
            plotly_version=plotly.version,
            **{name: Markup(text) for name, text in ours.items()},  # noqa: S704 - none is a run's
        )
    )


def page_path(output: str | os.PathLike[str]) -> Path:
    """`output` as a path. Raises UsageError for another extension than .html."""
    path = Path(output)
    if path.suffix.lower() != EXTENSION:
        raise UsageError(
            f"cannot write a page as {path.name!r}: its extension is {path.suffix!r}, where "
            f"{EXTENSION} was expected; try {path.stem or 'report'}{EXTENSION}"
        )
    return path


def default_path(run: Path) -> Path:
    """Where the page of `run` goes by default: beside it, or in it if it is a folder."""
    if run.is_dir():
        return run / f"report{EXTENSION}"
    return run.with_name(f"{run.stem}{EXTENSION}")


def check_replaceable(path: Path) -> None:
    """Raises UsageError where `path` is there already and no page of ours, or without plotly."""
    check_installed("plotly", "a page")
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(path, error) from error
    if OURS.encode() not in beginning:
        raise UsageError(
            f"{path} already exists and is no page that loadeval report wrote, so it is not "
            "replaced; give another path with --output"
        )


def write_page(text: str, path: Path) -> None:
    """Write the page, whole or not at all. Raises UsageError if it cannot be written."""
    check_replaceable(path)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(text.encode())
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write the page {path}: {error.strerror or error}; expected a path in a folder "
        "that exists and can be written"
    )


def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - heavy
    from markupsafe import Markup  # noqa: PLC0415 - needed only to write a page

    def literal(value: Any) -> Any:
        """What does not show, or steers what comes after it, as its escape; and not without end."""
        if isinstance(value, Markup | int):
            return value
        return printable(shortened(str(value), LONGEST_TEXT))

    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=literal,
        keep_trailing_newline=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _stylesheet(figures: Sequence[Figure]) -> str:
    heights = sorted({figure.height for figure in figures})
    css = _asset("page.css") + "".join(f".h-{pixels}{{height:{pixels}px}}" for pixels in heights)
    css = css.replace("/*classes*/", css_classes())
    for theme in THEMES:
        css = css.replace(f"/*{theme}*/", css_variables(theme))
    return css


def _asset(name: str) -> str:
    return (resources(PACKAGE) / "assets" / name).read_text("utf-8").replace("\r\n", "\n")

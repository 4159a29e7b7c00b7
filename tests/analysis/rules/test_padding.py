"""Padding: how much of the batches it is, and what steps would take without it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loadeval.analysis.estimate.padding import padding_share
from loadeval.analysis.rules.finding import Advice, Problem, Rule, Unknown
from loadeval.data.columns import Columns
from loadeval.data.lines import Padding
from loadeval.report.wording.advice import predicted_in_short
from loadeval.report.wording.findings import describe
from tests.analysis.rules.conftest import NOTHING, advised, finding_of, outcome
from tests.runs.given import MS, alternating
from tests.runs.tables import altered, replace, with_steps

if TYPE_CHECKING:
    from loadeval.data.run import Run

ROWS = 16


def padded(
    run: Run,
    share: float = 0.75,
    *,
    ms_per_token: float = 0.0,
    length: int | None = None,
    every: int = 3,
) -> Run:
    """The run, with batches of sequences of which so much is padding, one in `every` looked at.

    They are padded to `length`, or to the longest, and steps take so long for each token.
    """
    rng = np.random.default_rng(0)
    batch = np.arange(0, len(run.steps), every)
    longest = rng.integers(20, 200, len(batch)) if length is None else np.full(len(batch), 93)
    padded_to = longest if length is None else np.full(len(batch), length)
    positions = padded_to * ROWS
    longer_ns = run.steps.step_ns[batch] + (padded_to * ms_per_token * MS).astype(np.int64)
    tokens = (positions * (1 - share) * rng.uniform(0.8, 1.2, len(batch))).astype(np.int64)
    line = Padding(0, batch, positions, positions - tokens, padded_to, longest)
    run = with_steps(run, step_ns=altered(run.steps.step_ns, batch, longer_ns))
    return replace(run, padding=(line,))


def test_steps_that_follow_the_length_would_be_shorter() -> None:
    """Of 10 ms and 0.5 ms for each of 110 tokens, three quarters of these go."""
    run = padded(alternating(real=10, ideal=10), ms_per_token=0.5, every=1)
    finding = finding_of(Rule.PADDING, run)
    assert (finding.problem.code, finding.severity) == (Problem.TOKENS_PADDED, "high")
    assert (finding.cost_share, finding.confidence) == (None, "measured")
    assert advised(finding) == [Advice.GROUP_BY_LENGTH]
    (change,) = finding.changes
    assert change.values["at_most"] == pytest.approx(65 / (65 - 0.75 * 55), rel=0.05)
    assert predicted_in_short(finding).startswith("at most 2.")
    assert re.match(r"7\d.*% \[.*%, .*%\] of the tokens are padding\. Put ", describe(finding))


def test_the_share_has_an_interval_over_batches() -> None:
    """Four times as many batches halve it."""
    shares = []
    for pairs in (10, 40):
        figures = padding_share(padded(alternating(pairs=pairs)))
        assert figures is not None
        shares.append(figures.share)
    widths = [share.high - share.low for share in shares if share.high and share.low]
    assert all(share.low and share.low < 0.75 < (share.high or 0) for share in shares)
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.3)


def test_what_waiting_takes_is_not_gained() -> None:
    """A loader that is waited for leaves less to gain."""
    gains = [
        finding_of(Rule.PADDING, padded(alternating(wait=wait, real=10, ideal=10), ms_per_token=1))
        .changes[0]
        .values["at_most"]
        for wait in (0, 100)
    ]
    assert gains[0] > gains[1] > 1  # type: ignore[operator]  # both are numbers


def test_where_steps_do_not_follow_only_the_share_is_said() -> None:
    run = padded(alternating())
    noise_ns = np.random.default_rng(1).integers(0, MS, len(run.steps))
    run = with_steps(run, step_ns=run.steps.step_ns + noise_ns)
    finding = finding_of(Rule.PADDING, run)
    assert (finding.severity, finding.confidence) == ("low", "possible")
    assert predicted_in_short(finding) == ""


def test_a_constant_length_is_said() -> None:
    finding = finding_of(Rule.PADDING, padded(alternating(), 0.82, length=512))
    assert finding.problem.code is Problem.PADDED_TO_MAXIMUM
    assert (finding.severity, predicted_in_short(finding)) == ("moderate", "")
    assert advised(finding) == [Advice.PAD_TO_LONGEST, Advice.GROUP_BY_LENGTH]
    assert "every batch is padded to 512, and the longest sequence of a batch is 93" in describe(
        finding
    )


@pytest.mark.parametrize(("share", "ms_per_token"), [(0.1, 0.0), (0.15, 5.0), (0.8, 0.01)])
def test_little_padding_or_gain_is_no_finding(share: float, ms_per_token: float) -> None:
    """Where batches are sorted some is left, and where steps hardly follow it costs little."""
    run = padded(alternating(), share, ms_per_token=ms_per_token)
    assert outcome(Rule.PADDING, run) == NOTHING


def test_without_a_mask_it_is_not_measured() -> None:
    run = alternating()
    assert outcome(Rule.PADDING, run) is Unknown.NO_PADDING_TOLD
    assert outcome(Rule.PADDING, padded(run, every=100)) is Unknown.NO_PADDING_TOLD


def test_what_cannot_be_is_left_out() -> None:
    """A file may say that a batch has no positions, or more padding than positions."""
    run = padded(alternating())
    table = run.padding
    nothing = table.replace(positions=0 * table.positions)
    more = table.replace(padded=10**9 + table.padded)
    assert padding_share(replace(run, padding=Columns.concat([nothing, more]))) is None
    both = padding_share(replace(run, padding=Columns.concat([nothing, table])))
    assert both == padding_share(run)


def test_batches_whose_step_is_unknown_tell_the_share_alone() -> None:
    run = padded(alternating(), ms_per_token=0.5)
    later = run.padding.shift(9, ["epoch"])
    figures = padding_share(replace(run, padding=later))
    assert figures is not None
    assert (figures.saved_ns, figures.step_ns) == (None, None)
    assert figures.share.value == pytest.approx(0.75, rel=0.05)


def test_the_steps_of_a_device_count_where_they_are_known() -> None:
    """The host only queues them."""
    run = padded(alternating(), ms_per_token=0.5)
    on_host: Any = np.full(len(run.steps), MS)
    steps = replace(run.steps, gpu_step_ns=run.steps.step_ns, step_ns=on_host)
    of_device, of_host = padding_share(replace(run, steps=steps)), padding_share(run)
    assert of_device is not None
    assert of_host is not None
    assert of_device.saved_ns == of_host.saved_ns


def test_many_batches_are_thinned_out() -> None:
    """A slope takes all pairs of them."""
    figures = padding_share(padded(alternating(pairs=100), ms_per_token=0.5, every=1))
    assert figures is not None
    assert figures.batches == 1600
    assert figures.saved_ns is not None
    assert figures.saved_ns.value == pytest.approx(0.75 * 0.5 * 110 * MS, rel=0.05)

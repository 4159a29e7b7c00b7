"""Numbers with their units, plurals, moments and names, as text."""

from __future__ import annotations

import pytest

from loadeval import words

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (words.duration(0), "0 ns"),
        (words.duration(999.6), "1.00 us"),  # three digits
        (words.duration(15_200_000), "15.2 ms"),
        (words.duration(90_000_000_000), "90.0 s"),
        (words.duration(-3_200_000), "-3.20 ms"),
        (words.number(0.01234), "0.0123"),
        (words.number(999.6), "1,000"),
        (words.number(3_226_627_291), "3.23 billion"),
        (words.share(0.0), "0.0%"),
        (words.share(0.0001), "under 0.1%"),  # not rounded to nothing
        (words.share(0.456), "45.6%"),
        (words.share(-0.0001), "0.0%"),
        (words.whole_share(0.406), "41%"),
        (words.times(1.034), "1.03x"),  # two decimals above and below 1
        (words.times(0.9849), "0.98x"),
        (words.times(0.0123), "0.0123x"),
        (words.size(4_816_896), "4.82 MB"),
        (words.cpus(2.53), "2.5 CPUs"),
        (words.counted(2000, "batch", "batches"), "2,000 batches"),
        (words.moment(125_304_000_000), "125.30 s"),
        (words.span(400_000_000), "0 s"),
        (words.span(100 * SECOND), "1 min 40 s"),
        (words.span(3_600 * SECOND), "1 h 0 min"),
        (words.printable("a\x1b[31m\n\u202e\ud800b"), r"a\x1b[31m\n\u202e\ud800b"),
        (words.shortened("beginning-middle-end", 10), "begi...end"),
    ],
)
def test_what_is_said_everywhere(said: str, text: str) -> None:
    assert said == text

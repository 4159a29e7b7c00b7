"""Text of a run in figures and scripts."""

from __future__ import annotations

import json

import pytest

from loadeval.report.page.escaping import drawn, literal, script_json


def test_drawn_text_has_no_markup() -> None:
    """Tags, entities and TeX are characters."""
    assert drawn("<b>a</b> &lt; $x$") == "&lt;b&gt;a&lt;/b&gt; &amp;lt; &#36;x&#36;"


def test_drawn_text_steers_nothing() -> None:
    """What is not printable is its escape, and what is long is shortened."""
    assert drawn("a\x1b\u202e\u2028") == r"a\x1b\u202e\u2028"
    assert len(drawn("x" * 1000)) == 48


@pytest.mark.parametrize("text", ["<b>&amp;</b>", "&lt;", "&amp;lt;", "$ & <>"])
def test_literal_is_the_way_back(text: str) -> None:
    """What plotly.js draws is the text."""
    assert literal(drawn(text)) == text


def test_json_ends_no_script() -> None:
    """There is nothing in it that HTML takes for markup, nor a line separator."""
    data = {"</script><!--": ["]]>", "\u2028\u2029 & é", None, 1.5]}
    text = script_json(data)
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == data


def test_json_has_no_form_for_what_is_no_number() -> None:
    """A browser would not read such a form."""
    with pytest.raises(ValueError, match="JSON"):
        script_json([float("nan")])

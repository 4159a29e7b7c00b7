"""Texts: where they are, what is done with them, and how far they differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tokenizers import Tokenizer

from loadeval.analysis.choice import Kind
from loadeval.backends.catalogue import TEXT
from loadeval.backends.code import Work, code_of
from loadeval.backends.data import find_data
from loadeval.backends.samples import name_of, truncated_copy
from loadeval.backends.served import module_of, opened
from loadeval.backends.text import Transforms, line_at, parse_transforms
from loadeval.errors import UsageError
from tests.backends.folders import texts

if TYPE_CHECKING:
    from pathlib import Path

LINES = b'{"text": "one"}\n\n{"text": "two and three"}\n'
FIRST_IDS = """
import json, pathlib, load
(batch,) = load.make_loader(load.find_samples(pathlib.Path()), 1, shuffle=False)
print(json.dumps(batch[0][0].tolist()))
"""


class Hub(BaseHTTPRequestHandler):
    """Serves a tokenizer as the Hugging Face Hub does."""

    content: ClassVar[bytes]
    asked: ClassVar[list[str]]

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.do_HEAD()
        self.wfile.write(self.content)

    def log_message(self, *_: Any) -> None:
        pass


def test_lines_that_are_not_empty_are_texts(tmp_path: Path) -> None:
    """Each is named by the byte where it begins."""
    (tmp_path / "1.jsonl").write_bytes(LINES)
    data = find_data(tmp_path)
    assert (data.kind, data.field, data.classes) == (Kind.TEXT, "text", None)
    assert [name_of(sample) for sample in data.samples] == ["1.jsonl, byte 0", "1.jsonl, byte 17"]
    assert [line_at(*sample) for sample in data.samples] == LINES.splitlines(keepends=True)[::2]


def test_half_a_line_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_bytes(LINES)
    half = truncated_copy(find_data(tmp_path).samples[1], tmp_path)
    assert line_at(*half) == b'{"text": "two'


def test_files_are_texts_where_there_are_more_of_them(tmp_path: Path) -> None:
    for name in ("a.txt", "b/c.TXT", "d.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a text")
    data = find_data(tmp_path)
    assert [name_of(sample) for sample in data.samples] == ["a.txt", "c.TXT"]


@pytest.mark.parametrize("line", ["", "[1]", "{", '{"label": 1, "text": 2}'])
def test_lines_without_a_text_are_an_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "1.jsonl").write_text(f"{line}\n")
    with pytest.raises(UsageError, match="have no text; expected JSON with text, content, docum"):
        find_data(tmp_path)


def test_a_tokenizer_has_a_name_or_a_file(tmp_path: Path) -> None:
    """A file may be named from where the command runs; its code names it in full."""
    assert parse_transforms("tokenize gpt2") == Transforms("gpt2", 128)
    path = tmp_path / "my tokenizer.json"
    path.touch()
    parsed = parse_transforms(f"tokenize {path}, length 12")
    assert parsed.values() == {"tokenizer": str(path), "is_file": True, "length": 12}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "do not tokenize"),
        ("length 12", "do not tokenize"),
        ("tokenize", "has no tokenizer"),
        ("tokenize missing.json", "there is no file missing.json"),
        ("tokenize gpt2, length", "has no number of tokens"),
        ("tokenize gpt2, length 0", "has no number of tokens"),
        ("tokenize gpt2, lower", "transform 'lower' is not known; expected tokenize"),
    ],
)
def test_what_cannot_be_done_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_transforms(text)


def test_differences_are_a_share_of_the_ids() -> None:
    ids = np.arange(8).reshape(2, 4)
    other = ids.copy()
    other[1, :2] = 0
    assert Transforms("gpt2").difference(other, ids) == (25.0, 100.0, 50.0, 2)


@pytest.mark.check
@pytest.mark.parametrize("name", [each.name for each in TEXT])
def test_files_are_tokenized_as_lines_are(tmp_path: Path, name: str) -> None:
    texts(tmp_path, lines=False)
    (backend,) = (each for each in TEXT if each.name == name)
    path = tmp_path / f"load_files_{name.replace('-', '_')}.py"
    transforms = parse_transforms(f"tokenize {tmp_path}/tokenizer.json, length 16")
    path.write_text(code_of(backend, Work(tmp_path, transforms, 12, 1, kind=Kind.TEXT)))
    code = module_of(path)
    with opened(code.make_loader(code.find_samples(tmp_path), 1, shuffle=False)) as batches:
        ((ids, masks),) = batches
    first = code.TOKENIZER.encode("Now is the winter of our discontent")
    assert ids[0].tolist() == first.ids
    assert masks[0].tolist() == first.attention_mask
    assert len(ids) == 12


@pytest.mark.check
def test_a_tokenizer_comes_from_the_hub(tmp_path: Path) -> None:
    """By its name, as by its file."""
    texts(tmp_path)
    tokenizer = (tmp_path / "tokenizer.json").read_bytes()
    work = Work(tmp_path, parse_transforms("tokenize shakespeare/verses, length 16"), 12, 1)
    work = replace(work, kind=Kind.TEXT, field="text")
    (tmp_path / "load.py").write_text(code_of(TEXT[0], work))

    class Verses(Hub):
        content = tokenizer
        asked: ClassVar[list[str]] = []

    with HTTPServer(("127.0.0.1", 0), Verses) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}
        printed = subprocess.check_output(
            [sys.executable, "-c", FIRST_IDS], cwd=tmp_path, env=environment
        )
        server.shutdown()
    assert any("shakespeare/verses/resolve/main/tokenizer.json" in path for path in Verses.asked)
    encoding = Tokenizer.from_str(tokenizer.decode()).encode("Now is the winter of our discontent")
    assert json.loads(printed)[: len(encoding.ids)] == encoding.ids

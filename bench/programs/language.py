"""Small language models and their tokenizers, made here: there is no hub."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from pathlib import Path

WORDS = [f"word{number}" for number in range(100)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"]


def sentences(count: int, seed: int, words: int = 12) -> list[str]:
    """Of random words, of which the first say which sentence it is."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, words))) for _ in range(count)]


def tokenizer() -> Any:
    """One token for each word."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it so
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=64,
    )


def saved_bert(folder: Path) -> str:
    """A folder with a small BERT and its tokenizer."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)

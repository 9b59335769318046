"""Texts with more tokens than a model reads: their number, and windows for a mean over the whole text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from limpet.errors import DataError
from limpet.results import Part
from limpet.support.ranges import Count

OnLong = Literal["warn", "fail", "chunk-mean"]
"""Treatment of a text with too many tokens: truncate it with a warning, refuse it, or embed its windows."""

SHORT_BYTES = 512
"""Number of bytes up to which a model with an unknown tokenizer is assumed to read a text whole."""
_BYTES_PER_TOKEN = 4  # a normaliser may expand a character by this factor


@dataclass(frozen=True)
class TokenLimit:
    """Token counter of a model.

    Args:
        tokens: Maximum number of tokens per text, with special ones; None for no limit.
        tokenizer: A `tokenizers.Tokenizer`, without truncation if ``tokens`` is set.
        special: Whether special tokens are added.
    """

    tokens: int | None
    tokenizer: Any
    special: bool

    @classmethod
    def of(cls, tokenizer: Any, tokens: int | None, *, special: bool) -> TokenLimit:
        """Wrap a tokenizer without changing its settings."""
        if tokens is None:  # a copy takes as long as loading the model
            return cls(tokens, tokenizer, special)
        whole = type(tokenizer).from_str(tokenizer.to_str())
        whole.no_truncation()
        whole.no_padding()
        return cls(tokens, whole, special)

    def counts(self, texts: Sequence[str], prefix: str) -> NDArray[np.int64]:
        """Return the number of tokens of every text with a prefix (N,); 0 if it is certainly short enough."""
        found = np.zeros(len(texts), np.int64)
        if self.tokens is None:
            return found
        sizes = np.array([len((prefix + text).encode("utf-8", "replace")) for text in texts])
        rows = np.flatnonzero(sizes * _BYTES_PER_TOKEN + 8 > self.tokens)
        made = self.tokenizer.encode_batch(
            [prefix + texts[row] for row in rows.tolist()], add_special_tokens=self.special
        )
        found[rows] = [len(one.ids) for one in made]
        return found

    def windows(self, text: str, prefix: str) -> list[str]:
        """Return consecutive parts of a text, each short enough for the model with the prefix."""
        if self.tokens is None:
            return [text]
        spans = self.tokenizer.encode(text, add_special_tokens=False).offsets
        own = len(self.tokenizer.encode(prefix, add_special_tokens=self.special).ids)
        room = max(1, self.tokens - own)
        while True:
            ends = [spans[min(start + room, len(spans)) - 1][1] for start in range(0, len(spans), room)]
            parts = [text[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
            parts = [part for part in parts if part.strip()]
            if room == 1 or (self.counts(parts, prefix) <= self.tokens).all():
                return parts
            room -= max(1, room // 16)  # a part alone may have more tokens than within its text


class LongTextsRecord(Part):
    """Record of texts that a model truncates, for results; see `LongTexts`."""

    model: str
    limit: Count | None
    known: bool
    read: Count
    long: Count
    longest: Count
    on_long: OnLong
    sentence: str


@dataclass
class LongTexts:
    """Statistics of texts with more tokens than a model reads.

    Args:
        model: Name of the model given by the user.
        limit: Maximum number of tokens per text; None for no limit or if unknown.
        read: Number of texts checked.
        long: Number of texts with more tokens; with more than `SHORT_BYTES` bytes if the tokenizer is unknown.
        longest: Number of tokens of the longest text.
    """

    model: str
    limit: int | None = None
    known: bool = True
    read: int = 0
    long: int = 0
    longest: int = 0

    def sentence(self, on_long: OnLong) -> str | None:
        """Describe how long texts were treated; None if there were none."""
        if not self.long:
            return None
        if not self.known:
            return (
                f"{self.long:,} of {self.read:,} texts have more than {SHORT_BYTES} bytes. How many tokens "
                f"'{self.model}' reads of a text is not known here: the server may have cut them."
            )
        said = (
            f"{self.long:,} of {self.read:,} texts have more than the {self.limit:,} tokens that '{self.model}' reads; "
            f"the longest has {self.longest:,}."
        )
        if on_long == "chunk-mean":
            return f"{said} Each was embedded as the mean of its windows."
        return f"{said} The rest of them was cut: `on-long chunk-mean` embeds all of it, `on-long fail` refuses it."

    def record(self, on_long: OnLong) -> LongTextsRecord | None:
        """Return the record of long texts for results; None if there were none."""
        sentence = self.sentence(on_long)
        return None if sentence is None else LongTextsRecord(**vars(self), on_long=on_long, sentence=sentence)

    def refusal(self) -> DataError:
        """Return the error for long texts that must not be truncated."""
        return DataError(
            f"{self.long:,} of {self.read:,} texts have more than the {self.limit:,} tokens that '{self.model}' reads; "
            f"the longest has {self.longest:,}.",
            expected="texts that the model reads whole",
            to_do="shorten them; `--model-options.on-long chunk-mean` embeds the mean of windows, `warn` cuts them.",
        )

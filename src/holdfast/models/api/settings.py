"""How a model behind an API is asked."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import ConfigError, refuse
from holdfast.models.api.meter import Meter

KEY_VARIABLE = "OPENAI_API_KEY"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, eq=False)
class ApiSettings:
    """How a model behind an API is asked.

    Args:
        key_variable: Environment variable that holds the key; only its name is ever kept.
        cache: File that keeps every vector by its text and model; None keeps none.
        characters: Of the texts of one request, at most; a longer text goes alone.
        timeout: Seconds until an answer must have come.
        retries: How often a request is sent again after a failure that may pass.
        allow_http: Send texts and key without encryption to another machine.
        accept_change: Take a model that changed behind its name for another one, with a fingerprint of its own.
        meter: Counts tokens, keeps to limits, and knows the time.

    Raises:
        ConfigError: A number is out of range, or something else than the name of a variable was given.
    """

    key_variable: str = KEY_VARIABLE
    cache: Path | None = None
    characters: int = 100_000
    timeout: float = 60.0
    retries: int = 6
    allow_http: bool = False
    accept_change: bool = False
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        refuse(not 0 < self.timeout < math.inf, f"--api-timeout {self.timeout}.", "more than 0 seconds")
        refuse(self.characters < 1, f"--api-characters {self.characters}.", "at least 1")
        refuse(self.retries < 0, f"--api-retries {self.retries}.", "at least 0")
        if not _VARIABLE.fullmatch(self.key_variable):  # perhaps the key itself, so it is not repeated
            raise ConfigError(
                "--api-key-variable was given something that is no name of an environment variable.",
                expected=f"a name such as {KEY_VARIABLE}; never the key itself",
                to_do=f"export {KEY_VARIABLE}=…, and leave the option out. Nothing was sent.",
            )

    def key(self) -> str | None:
        """Return the key; None where the usual variable is not set, as servers of one's own need none.

        It is read from the environment here, where a request is made, and handed to nobody else.

        Raises:
            ConfigError: A variable that was named is not set, or it holds what no header can.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if not key and self.key_variable != KEY_VARIABLE:
            raise ConfigError(
                "The environment variable that --api-key-variable names is not set.",
                expected="the name of one that holds the key",
                to_do="export it, or correct the name. Nothing was sent.",
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ConfigError(
                f"The environment variable {self.key_variable} holds more than a key.",
                expected="one word of plain letters, digits and signs",
                to_do="set it again. Nothing was sent.",
            )
        return key or None

"""The limits of rendering one chat template."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class TemplateLimits:
    """Limits of one rendering in a process of its own; the conversation and the source are checked before."""

    address_space: int = 512 * MIB  # bytes of the whole process; Python with Jinja2 takes about 35 MiB of them
    cpu_seconds: int = 5  # processor time, up to the next whole second
    seconds: float = 10.0  # by the clock: the longest that a caller waits
    max_characters: int = 16 * MIB  # of the rendered text
    max_source: int = 1 * MIB  # characters of the template
    max_request: int = 32 * MIB  # bytes of the messages, tools and other variables as JSON

"""`ChatHistory`: the messages of a chat, fitting them into the context, saving and loading."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.files import write_file
from zinc_rt.cli.prompts import read_text
from zinc_rt.errors import ZincError

ROLES = ("system", "user", "assistant")


Content = str | list[Mapping[str, Any]]
"""A text, or parts: pictures with their bytes, and texts."""


class Message(TypedDict):
    """A message of a chat; the field names are those of chat templates."""

    role: str
    content: Content


class ChatHistory:
    """System prompt, then user and assistant messages in turn."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.messages: list[Message] = []
        self.dropped = 0  # messages at the front that no longer fit the context

    def reset(self) -> None:
        """Forget all messages; the system prompt stays."""
        self.messages.clear()
        self.dropped = 0

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put everything back as it was if what runs inside fails."""
        before = self.system, list(self.messages), self.dropped
        try:
            yield
        except ZincError:
            self.system, self.messages, self.dropped = before
            raise

    def ask(self, content: Content) -> None:
        """The user's next message."""
        self.messages.append({"role": "user", "content": content})

    def answer(self, text: str) -> None:
        """The assistant's answer to it."""
        self.messages.append({"role": "assistant", "content": text})

    def undo(self, role: str) -> bool:
        """Remove the last message if it has this role."""
        if self.messages and self.messages[-1]["role"] == role:
            self.messages.pop()
            self.dropped = min(self.dropped, len(self.messages))
            return True
        return False

    def seen(self) -> list[Message]:
        """The messages that the model gets: the system prompt and those not dropped."""
        system: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return system + self.messages[self.dropped :]

    def fit(self, encode: Callable[[Sequence[Message]], list[int]], room: int) -> list[int]:
        """Token ids of what the model gets, dropping the oldest turns until at most `room` are left.

        Raises `CommandError` when even the last message alone does not fit; nothing is dropped then.
        """
        before = self.dropped
        while True:
            ids = encode(self.seen())
            if len(ids) <= room:
                return ids
            if self.dropped + 1 >= len(self.messages):
                self.dropped = before
                raise CommandError(
                    f"the message takes {len(ids)} tokens with its system prompt, the context leaves {room} "
                    "for it; shorten it or use a larger context (-c)"
                )
            self.dropped += 1
            while self.messages[self.dropped]["role"] != "user" and self.dropped + 1 < len(self.messages):
                self.dropped += 1

    def save(self, path: str) -> None:
        """Write everything as JSON; an older file is replaced by a whole one or stays. Raises `CommandError`."""
        tree = {"system": self.system, "messages": self.messages}
        write_file(path, json.dumps(tree, ensure_ascii=False, indent=1) + "\n")

    def load(self, path: str) -> None:
        """Replace everything by what `save` wrote. Raises `CommandError`; nothing has changed then."""
        try:
            tree = json.loads(read_text(os.path.abspath(path)))
        except (ValueError, RecursionError):
            raise CommandError(f"{path} is no saved conversation: it is not JSON text") from None
        system, messages = _checked(tree, path)
        self.system, self.messages, self.dropped = system, messages, 0


def _checked(tree: object, path: str) -> tuple[str | None, list[Message]]:
    def bad(problem: str) -> CommandError:
        return CommandError(f"{path} is no saved conversation: {problem}")

    if not isinstance(tree, dict) or not isinstance(tree.get("messages"), list):
        raise bad('it has no list "messages"')
    system = tree.get("system")
    if system is not None and not isinstance(system, str):
        raise bad('"system" is neither text nor null')
    messages: list[Message] = []
    for number, item in enumerate(tree["messages"], start=1):
        expected = ROLES[1 + len(messages) % 2]
        if not isinstance(item, dict) or item.get("role") != expected or not _is_content(item.get("content")):
            raise bad(f'message {number} is not {{"role": "{expected}", "content": text}}')
        messages.append({"role": expected, "content": item["content"]})
    return system, messages


def _is_content(content: object) -> bool:
    """Whether it is a text, or a list of parts with types; what is in them the chat checks."""
    if isinstance(content, list):
        return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content)
    return isinstance(content, str)

"""The process that renders chat templates, as the runtime sees it. `template_job` is the other side."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from zinc_rt.text.errors import ChatTemplateError, shown
from zinc_rt.text.template_limits import TemplateLimits
from zinc_rt.utils.isolated.process import IsolatedError, IsolatedProcess, IsolatedWork
from zinc_rt.utils.isolated.worker import UTF8, pack_frame


class TemplateProcess(IsolatedProcess):
    """Renders templates in a process of its own. Threads take turns."""

    limits: TemplateLimits

    def __init__(self, limits: TemplateLimits) -> None:
        settings = {"max_characters": limits.max_characters}
        super().__init__(
            IsolatedWork("zinc_rt.text.template_job", "render", 4 * limits.max_characters, settings), limits
        )

    def render(self, source: str, variables: Mapping[str, Any]) -> str:
        """The text that a template makes of its variables, which must be such as JSON has.

        Raises ChatTemplateError for a template that does not compile, fails, refuses the conversation or goes over
        a limit, for variables that cannot be sent, and where no process can be started.
        """
        if len(source) > self.limits.max_source:
            raise ChatTemplateError(f"the source has {len(source)} characters, the limit is {self.limits.max_source}")
        try:
            header, content = self.ask(self._request(source, variables))
        except IsolatedError as error:
            raise ChatTemplateError(str(error), line=_line(error.answer)) from None
        if "problem" in header:
            raise ChatTemplateError(str(header["problem"]), line=_line(header))
        try:
            text = str(content, *UTF8)
        except ValueError:
            self.close()
            raise ChatTemplateError("the process that renders it sent an answer that cannot be read") from None
        if len(text) > self.limits.max_characters:
            raise ChatTemplateError(f"it makes a text of more than {self.limits.max_characters} characters")
        return text

    def _request(self, source: str, variables: Mapping[str, Any]) -> bytes:
        try:
            parts = pack_frame(_plain(variables), source.encode(*UTF8))
        except RecursionError:
            raise ChatTemplateError("messages or variables hold themselves, or are nested too deep") from None
        except ValueError as error:  # an integer of thousands of digits
            raise ChatTemplateError(f"messages or variables cannot be written as JSON: {error}") from None
        if len(parts[1]) > self.limits.max_request:
            raise ChatTemplateError(
                f"messages and variables take {len(parts[1])} bytes as JSON, the limit is {self.limits.max_request}"
            )
        return b"".join(parts)


def _line(answer: Mapping[str, Any]) -> int | None:
    """The line that an answer tells of. Nothing is taken for granted: a template is behind it."""
    line = answer.get("line")
    return line if isinstance(line, int) else None


def prepare() -> None:
    """Start a process for the next file's templates, while the file is read. It ends with the program at the latest."""
    if not _prepared:
        process = TemplateProcess(TemplateLimits())
        process.prepare()
        _prepared.append(process)


def take(limits: TemplateLimits) -> TemplateProcess:
    """A process for the templates of one file: one that was prepared, or one that starts when it is needed."""
    with contextlib.suppress(IndexError):
        process = _prepared.pop()
        if process.limits == limits:
            return process
    return TemplateProcess(limits)


def _plain(value: Any) -> Any:
    """A value with mappings as dicts and tuples as lists, as JSON has them. Raises ChatTemplateError for others."""
    if value is None or isinstance(value, (str, int, float)):  # bool is an int
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ChatTemplateError(f"a key of messages or variables must be a str, not {shown(key)}")
        return {key: _plain(item) for key, item in value.items()}
    raise ChatTemplateError(
        f"messages and variables must be made of str, int, float, bool, None, lists and mappings, not {shown(value)}"
    )


_prepared: list[TemplateProcess] = []

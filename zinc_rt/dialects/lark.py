"""`LarkText`: collects the rules of a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from zinc_rt.grammar.texts import HEAD, json_rule, literal, pattern_literal, quoted

if TYPE_CHECKING:
    from zinc_rt.grammar.vocabulary import GrammarVocabulary

_TEXT: Final = "TEXT: /(?s:.+)/"
_TAG: Final = re.compile("(</?[a-z_]+>|\uff5cDSML\uff5c)")
"""What may be a token within a text that is written of several."""
_SPACE: Final = r"SPACE: /[ \n\r\t]{1,8}/"


class LarkText:
    """Rules under names of their own. What its methods return stands on the right side of another rule."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self._rules: list[str] = []
        self._nested: list[str] = []

    def rule(self, body: str, options: str = "") -> str:
        """A rule with this right side."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def forward(self) -> str:
        """The name of a rule that `define` makes later."""
        self._rules.append("")
        return f"r{len(self._rules) - 1}"

    def define(self, name: str, body: str) -> None:
        """Make the rule of `forward`."""
        self._rules[int(name[1:])] = f"{name}: {body}"

    def terminal(self, body: str) -> str:
        """A rule that is one regular expression."""
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def json(self, schema: object, where: str, lenient: bool = False) -> str:
        """JSON texts of a schema; lenient: unknown keywords are ignored. Raises `GrammarError`: see `check_schema`."""
        return self.rule(json_rule(schema, where, lenient=lenient))

    def literal(self, text: str) -> str:
        """This text, in which marks that are tokens of the vocabulary are no marks."""
        return literal(text)

    def mark(self, mark: str) -> str:
        """A mark: the token, or its text where the vocabulary has no such token."""
        token = self._vocabulary.mark_id(mark)
        return self.tags(mark) if token is None else f"<[{token}]>"

    def tags(self, text: str) -> str:
        """This text, in which tags are tokens where the vocabulary has them."""
        before, token, after = self._around(text)
        if token is None:
            return literal(text)
        return " ".join((literal(before) if before else "", f"<[{token}]>", self.tags(after) if after else "")).strip()

    def _around(self, text: str) -> tuple[str, int | None, str]:
        """The first token in a text, and what is before it and behind it."""
        for found in _TAG.finditer(text):
            token = self._vocabulary.mark_id(found[0])
            if token is not None:
                return text[: found.start()], token, text[found.end() :]
        return text, None, ""

    def until(self, mark: str) -> str:
        """Any text up to the first time that a mark comes, with the mark."""
        before, token, after = ("", self._vocabulary.mark_id(mark), "")
        if token is None:
            before, token, after = self._around(mark)
        if token is None:
            return self.rule(pattern_literal(f"(?s:.*){quoted(mark)}"), "[lazy]")
        text = pattern_literal(f"(?s:.*){quoted(before)}") if before else "TEXT?"
        return self.rule(f"{text} <[{token}]> {self.tags(after) if after else ''}")

    def closed(self, body: str, close: str, *, empty: bool) -> str:
        """A regular expression of Lark, and the tag behind it. empty: whether it admits no text, too."""
        before, token, after = self._around(close)
        if token is None:
            return self.terminal(f"({body}) {literal(close)}")
        if before:
            return self.rule(f"{self.terminal(f'({body}) {literal(before)}')} {self.tags(close[len(before) :])}")
        some = f"{self.terminal(f'{body} & /(?s:.+)/')}{'?' if empty else ''}"
        return self.rule(f"{some} <[{token}]> {self.tags(after) if after else ''}")

    def any_of(self, options: Iterable[str]) -> str:
        """One of these."""
        found = list(options)
        return found[0] if len(found) == 1 else self.rule(" | ".join(found))

    def nested(self, grammar: str) -> str:
        """A whole Lark grammar with names of its own."""
        self._nested.append(grammar)
        return f"@g{len(self._nested) - 1}"

    def finish(self, start: str) -> str:
        """The grammar's text; `start` is the first rule's right side. TEXT is any text, SPACE a little white space."""
        text = f"{HEAD}start: {start}\n" + "\n".join([*self._rules, _TEXT, _SPACE]) + "\n"
        if not self._nested:
            return text
        inner = [{"name": f"g{i}", "lark_grammar": grammar} for i, grammar in enumerate(self._nested)]
        return json.dumps({"grammars": [{"lark_grammar": text}, *inner]}, ensure_ascii=False)

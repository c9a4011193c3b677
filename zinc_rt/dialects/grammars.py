"""`build_grammar`: makes the grammar that a request's answer has to follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from zinc_rt.dialects.forms.base import CallForm
from zinc_rt.dialects.lark import LarkText
from zinc_rt.dialects.record import Dialect, ThinkingState
from zinc_rt.dialects.tools import ChoiceMode, FormatKind, RequestError, ResponseFormat, Tool, ToolChoice
from zinc_rt.grammar import texts
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.matcher import compile_grammar
from zinc_rt.scheduler.messages import Grammar

if TYPE_CHECKING:
    from zinc_rt.grammar.vocabulary import GrammarVocabulary
    from zinc_rt.text.harmony import MessageFormat

_NO_BRACE: Final = r"/[^{ \n\r\t](?s:.*)/"
"""Text that does not look like a call, which is a JSON object without a mark."""


def build_grammar(
    dialect: Dialect,
    vocabulary: GrammarVocabulary,
    tools: Sequence[Tool] = (),
    tool_choice: ToolChoice | None = None,
    parallel: bool = True,
    response_format: ResponseFormat | None = None,
    thinking: ThinkingState = ThinkingState.off,
) -> Grammar | None:
    """The grammar of an answer; None where it is free.

    tool_choice: None is auto. parallel: whether several calls may be made, where the family can. With tools of choice
    and a response format, the answer is calls, or content of that form. thinking: where the prompt leaves the model;
    reasoning is free, and the grammar holds behind it. It was compiled once: what it has can be used.

    Raises `GrammarError` for schemas that cannot be used, `RequestError` for tools where the family makes no calls.
    """
    choice = tool_choice or ToolChoice()
    form = None if response_format is None or response_format.kind is FormatKind.text else response_format
    offered = [tool for tool in tools if not choice.names or tool.name in choice.names]
    if choice.mode is ChoiceMode.none:
        offered = []
    if offered and not dialect.takes_tools:
        raise RequestError(
            "tools",
            "cannot be used: the model's chat template takes none; leave them out or use another model",
            unsupported=True,
        )
    several = parallel and dialect.parallel and not (choice.mode is ChoiceMode.required and len(choice.names) == 1)
    must = choice.mode is ChoiceMode.required
    if not offered and form is None:
        return None

    def make(tools: Sequence[Tool]) -> Grammar:
        plan = _Plan(vocabulary, dialect, tools, must, several, form, thinking)
        return plan.marked() if dialect.messages is None else plan.channels(dialect.messages)

    grammar = make(offered)
    try:
        compile_grammar(grammar, vocabulary)
    except GrammarError:
        _name_culprit(offered, form, vocabulary)
        for tool in offered:
            try:
                compile_grammar(make([tool]), vocabulary, tool.where)
            except GrammarError as error:
                raise error from None
        raise
    return grammar


def text_grammar(vocabulary: GrammarVocabulary, form: ResponseFormat) -> Grammar | None:
    """The grammar of a text that follows a prompt as it is; None where it is free. It was compiled once.

    Raises `GrammarError`.
    """
    if form.kind is FormatKind.text:
        return None
    grammar = Grammar(_form_text(form))
    compile_grammar(grammar, vocabulary, form.where)
    return grammar


def _name_culprit(tools: Sequence[Tool], form: ResponseFormat | None, vocabulary: GrammarVocabulary) -> None:
    """Raises the error of the first schema that cannot be used by itself, with its place."""
    for tool in tools:
        text = texts.json_schema(tool.parameters, tool.where, lenient=not tool.strict)
        compile_grammar(Grammar(text), vocabulary, tool.where)
    if form is not None:
        text_grammar(vocabulary, form)


def _form_text(form: ResponseFormat) -> str:
    match form.kind:
        case FormatKind.json_schema:
            return texts.json_schema(form.value, form.where)
        case FormatKind.regex:
            return texts.regex(form.value, form.where)
        case FormatKind.choice:
            return texts.choice(form.value, form.where)
        case FormatKind.lark:
            return texts.lark(form.value, form.where)
        case _:
            return texts.json_object()


class _Plan:
    """One request's grammar."""

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        dialect: Dialect,
        tools: Sequence[Tool],
        must: bool,
        several: bool,
        form: ResponseFormat | None,
        thinking: ThinkingState,
    ) -> None:
        self.lark = LarkText(vocabulary)
        self.vocabulary, self.dialect, self.tools = vocabulary, dialect, tools
        self.must, self.several, self.form, self.thinking = must, several, form, thinking

    def marked(self) -> Grammar:
        """For families that mark calls and reasoning."""
        lark, calls, think = self.lark, self.dialect.calls, self.dialect.think
        body = ""
        if self.tools and calls is not None:
            begin = self.vocabulary.mark_id(calls.begin)
            behind = calls.grammar(lark, self.tools, self.several)
            if not self.must and self.form is None and begin is not None and not calls.bare:
                return Grammar(lark.finish(behind), after=(begin,))
            body = self._calls_or_content(calls, behind)
        elif self.form is not None:
            body = self._content(self.form)
        body = lark.rule(body)
        if think is None or self.thinking in (ThinkingState.off, ThinkingState.continued):
            return Grammar(lark.finish(body))
        end = self.vocabulary.mark_id(think[1])
        if self.thinking is ThinkingState.opened:
            if end is not None:
                return Grammar(lark.finish(f"SPACE? {body}"), after=(end,))
            return Grammar(lark.finish(f"{lark.until(think[1])} SPACE? {body}"))
        return Grammar(lark.finish(f"({lark.mark(think[0])} {lark.until(think[1])} SPACE?)? {body}"))

    def _calls_or_content(self, form: CallForm, behind: str) -> str:
        lark = self.lark
        marked = f"{lark.mark(form.begin)} {behind}"
        if self.must:
            return f"{marked} | {behind}" if form.bare else marked
        if self.form is not None:
            return f"{marked} | {self._content(self.form)}"
        if form.bare:
            return f"{marked} | {behind} | {lark.terminal(_NO_BRACE)}?"
        if self.vocabulary.mark_id(form.begin) is not None:
            return f"TEXT? ({marked})?"
        return f"{lark.until(form.begin)} {behind} | TEXT?"

    def _content(self, form: ResponseFormat) -> str:
        """The rule of content in a response format."""
        lark = self.lark
        match form.kind:
            case FormatKind.json_schema:
                return lark.json(form.value, form.where)
            case FormatKind.json_object:
                return lark.json({"type": "object"}, form.where)
            case FormatKind.regex:
                return lark.terminal(texts.regex_rule(form.value, form.where))
            case FormatKind.choice:
                return lark.rule(texts.choice_rule(form.value, form.where))
            case _:
                return lark.nested(_form_text(form))

    def channels(self, format: MessageFormat) -> Grammar:
        """For answers in messages, of which the last ones are calls, or the last one is the answer."""
        lark, mark = self.lark, self.lark.mark
        message, json = mark("<|message|>"), f'{mark("<|constrain|>")} "json"'
        next_ = f'{mark(format.ends[0])} {mark("<|start|>")} "assistant"'

        def head(name: str) -> str:
            before, text = format.head(name)
            return f"{mark(before) if before else ''} {lark.literal(text)}"

        before = [f"{head(format.thinks)} {message} TEXT? {next_}"]
        last: list[str] = []
        if self.tools:
            if self.form is None:
                said = "commentary" if format.in_headers else format.answers
                before.append(f"{head(said)} {message} TEXT? {next_}")
            call = lark.any_of(lark.rule(self._message(format, tool, message, json)) for tool in self.tools)
            last.append(lark.rule(f"{call} ({next_} {call})*") if self.several else call)
        if not self.must or not self.tools:
            kind = f'(" "? {json})?' if self.form is not None and format.in_headers else ""
            content = "TEXT?" if self.form is None else self._content(self.form)
            last.append(lark.rule(f"{head(format.answers)} {kind} {message} {content}"))
        free = lark.rule(" | ".join(before))
        return Grammar(lark.finish(f"{free}* {lark.any_of(last)}"))

    def _message(self, format: MessageFormat, tool: Tool, message: str, json: str) -> str:
        """A call's message, without its end."""
        lark, mark, calls = self.lark, self.lark.mark, self.dialect.calls
        if calls is not None:
            if tool.name in (format.thinks, format.answers):
                raise GrammarError(f"the name {tool.name!r} is no tool's for this model; rename it", tool.where)
            to = lark.literal(f" to={tool.name}")
            return f"{to} {message} {mark(calls.begin)} {calls.grammar(lark, [tool], parallel=False)}"
        to, channel = lark.literal(f" to=functions.{tool.name}"), mark("<|channel|>")
        header = f'({channel} ("commentary" | "analysis") {to} | {to} {channel} "commentary")'
        return f'{header} (" "? {json} | " json")? {message} {lark.json(tool.parameters, tool.where, not tool.strict)}'

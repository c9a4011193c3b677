"""The words of a command line as the parser is to get them: no bundles of short options, llama.cpp's options read."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from zinc_rt.cli.llamacpp import BY_NAME, OF_MODELS, Does, Theirs
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

_OLDER: Final = Theirs(("--tier",), Does.other, "NAME", to=("--device", "{}"))
_CACHE_TYPES: Final = {"-ctk": 0, "--cache-type-k": 0, "-ctv": 1, "--cache-type-v": 1}


def readable(args: Sequence[str], params: Sequence[Any], verb: str) -> list[str]:
    """The words in our options: each option a word of its own, llama.cpp's translated or dropped.

    params: of the verb, as the parser knows them. Raises `UsageError` for options that the verb has not, for those of
    llama.cpp that cannot be obeyed, and for two names of one option that say different things.
    """
    return _Words(args, params, verb).read()


class _Words:
    """One command line while it is read."""

    def __init__(self, args: Sequence[str], params: Sequence[Any], verb: str) -> None:
        self._rest = deque(args)
        self._own = {name: param for param in params for name in (*param.opts, *param.secondary_opts)}
        self._verb = verb
        theirs = BY_NAME if verb in OF_MODELS else {}
        self._theirs = {**theirs, **dict.fromkeys(_OLDER.names, _OLDER)}
        self._out: list[str] = []
        self._said: dict[Any, dict[str, str]] = {}  # options of one value: what each of their names said
        self._cache_types = ["", ""]

    def read(self) -> list[str]:
        while self._rest:
            word = self._rest.popleft()
            if word == "--":
                self._out += [word, *self._rest]
                break
            if word == "-" or not word.startswith("-"):
                self._out.append(word)
                continue
            name, equals, inline = word.partition("=")
            if name in self._own:
                self._ours(name, inline if equals else None)
            elif name in self._theirs:
                self._translate(name, self._theirs[name], inline if equals else None)
            else:
                raise UsageError(self._unknown(name))
        return self._with_cache_type()

    def _ours(self, name: str, inline: str | None, called: str = "") -> None:
        """An option of the verb. called: the name that it was given by."""
        param = self._own[name]
        if getattr(param, "is_flag", False):
            self._out.append(name if inline is None else f"{name}={inline}")
            return
        if inline is None and not self._rest:
            self._out.append(name)  # the parser says what is missing
            return
        value = self._rest.popleft() if inline is None else inline
        self._out += [name, value]
        if not param.multiple:
            said = self._said.setdefault(param, {})
            said[called or name] = value
            if len(set(said.values())) > 1 and not said.keys() <= self._own.keys():
                names = " and ".join(f"{one} {show(text)}" for one, text in said.items())
                raise UsageError(f"{names} are names of one option; give one of them")

    def _translate(self, name: str, row: Theirs, inline: str | None) -> None:
        if row.does is Does.refused:
            raise UsageError(f"{name} of llama.cpp is not supported here: {row.note}")
        if row.does is Does.same:
            more = f": {row.note}" if row.note else ""
            raise UsageError(f"zinc {self._verb} has no {name}{more}; {self._explains}")
        value = self._value(name, row, inline)
        if row.does is Does.nothing:
            return
        if row.to[0] not in self._own:
            raise UsageError(self._unknown(name))
        if name in _CACHE_TYPES:
            self._cache_types[_CACHE_TYPES[name]] = value or ""
        else:
            self._ours(row.to[0], value, name)

    def _value(self, name: str, row: Theirs, inline: str | None) -> str | None:
        """The value of an option of llama.cpp, None for none. Raises `UsageError` where it has to have another."""
        if not row.value:
            if inline is not None:
                raise UsageError(f"{name} takes no value, and {show(inline)} is given")
            return None
        value = inline
        if value is None and row.value.startswith("["):
            return self._rest.popleft() if self._rest and self._rest[0] in row.choices else None
        if value is None:
            if not self._rest:
                raise UsageError(f"{name} needs a value: {name} {row.value}")
            value = self._rest.popleft()
        if row.choices and value not in row.choices:
            raise UsageError(f"{name} is {show(value)}; it must be one of {', '.join(row.choices)}")
        if row.value == "N" and row.does is Does.nothing and not value.removeprefix("-").isdecimal():
            raise UsageError(f"{name} is {show(value)}; it must be a whole number")
        return value

    def _with_cache_type(self) -> list[str]:
        """Keys and values of the cache have one format here. A type that is not named is f16, as in llama.cpp."""
        if not any(self._cache_types):
            return self._out
        keys, values = (one or "f16" for one in self._cache_types)
        if keys != values:
            raise UsageError(
                f"-ctk is {keys} and -ctv is {values}; here both have one format: give the same to both, or --kv"
            )
        if any(said != keys for said in self._said.get(self._own["--kv"], {}).values()):
            raise UsageError(f"-ctk is {keys}, and --kv something else; give one of them")
        return ["--kv", keys, *self._out]

    @property
    def _explains(self) -> str:
        path = f"zinc {self._verb}".rstrip()
        return f"{path} --help explains the options"

    def _unknown(self, name: str) -> str:
        """The error for an unknown option, with the name of a similar one."""
        from difflib import get_close_matches  # not at import: a command line that is right needs none

        meant = ""
        short = next((own for own in self._own if len(own) == 2 and name.startswith(own)), "")
        if len(name) > 2 and short and name[2:].isdecimal():
            meant = f"{short} {name[2:]}"
        else:
            dashes = "--" if name.startswith("--") else "-"
            known = [one for one in {**self._own, **self._theirs} if one.startswith(dashes)]
            meant = " or ".join(get_close_matches(name, known, n=2, cutoff=0.7))
        hint = f"; did you mean {meant}?" if meant else ""
        return f"No such option: {show(name)}{hint} ({self._explains})"

"""Check a folder of llama.cpp's vocabulary files: `python -m tests.text.llamacpp_fixtures FOLDER`.

Beside `ggml-vocab-<name>.gguf` lie `.gguf.inp`, texts between separator lines, and `.gguf.out`, their ids,
one text a line. They hold without special tokens at the ends and with control tokens as plain text.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.gguf import GGUFFile
from zinc_rt.text import Tokenizer, TokenizerError

SEPARATOR = "\n__ggml_vocab_test__\n"


@dataclass(frozen=True)
class Result:
    """One vocabulary: the cases, those encoded differently, or why there is no tokenizer for it."""

    name: str
    cases: int
    different: tuple[str, ...] = ()
    unsupported: str = ""


def read_cases(vocabulary: Path) -> list[tuple[str, list[int]]]:
    """Texts and expected ids beside a vocabulary file; none when it has no cases."""
    texts, ids = (vocabulary.with_name(vocabulary.name + end) for end in (".inp", ".out"))
    if not texts.exists():
        return []
    parts = texts.read_bytes().decode("utf-8").split(SEPARATOR)
    lines = ids.read_text(encoding="utf-8").splitlines()
    if parts[-1] == "" and len(parts) == len(lines) + 1:
        parts.pop()  # a separator ended the file
    return [(text, [int(word) for word in line.split()]) for text, line in zip(parts, lines, strict=True)]


def check(vocabulary: Path) -> Result:
    """Encode every case of one vocabulary file."""
    name, cases = vocabulary.stem.removeprefix("ggml-vocab-"), read_cases(vocabulary)
    with GGUFFile.open(vocabulary) as file:
        try:
            tokenizer = Tokenizer.from_metadata(file.metadata)
        except TokenizerError as error:
            return Result(name, len(cases), unsupported=str(error))
        different = [
            text for text, ids in cases if tokenizer.encode(text, add_special=False, parse_special=False) != ids
        ]
    return Result(name, len(cases), tuple(different))


def main(folder: str) -> int:
    """Print one line per vocabulary. 0 when all supported ones agree, 1 when not or when there is none."""
    results = []
    for path in sorted(Path(folder).glob("ggml-vocab-*.gguf")):
        try:
            results.append(check(path))
        except TokenizerError as error:
            results.append(Result(path.stem, 0, (str(error),)))
    for result in results:
        if result.unsupported:
            print(f"{result.name}: not supported: {result.unsupported[:90]}")
        else:
            print(f"{result.name}: {result.cases - len(result.different)} of {result.cases} cases agree")
            for text in result.different:
                print(f"    different: {text!r}")
    return 0 if results and not any(result.different for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)

"""The road of a token: files and Python calls that one decode step of one text passes, on the CPU.

    python benchmarks/road.py                            # this tree
    python benchmarks/road.py --calls                    # every call, in order
    python benchmarks/road.py --tree ../before --tree .  # several

The bundled model generates a greedy text through `Model.stream` for the second time: a model decodes the bytes of each
token of its vocabulary once. For each of 16 tokens, every call of a function of
`zinc_rt` is counted, comprehensions and resumed generators too, from asking for the piece to having it. The median is
told: some tokens fill a page and do a little more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

WARM, TOKENS = 8, 16


def calls_of(work: Callable[[], object], root: str) -> list[tuple[str, str]]:
    """File and function of each call below `root` while `work` runs on this thread."""
    found = list[tuple[str, str]]()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            found.append((frame.f_code.co_filename[len(root) :], frame.f_code.co_qualname))

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def roads() -> list[list[tuple[str, str]]]:
    """The calls of each token of a greedy text of the bundled model."""
    import zinc_rt

    root = f"{Path(zinc_rt.__file__).parent}{os.sep}"
    with zinc_rt.load(device="cpu", n_ctx=128, threads=1) as model:
        model.generate("Once upon a time", max_tokens=64, temperature=0, ignore_eos=True)  # decodes the bytes of tokens
        text: Iterator[object] = model.stream("Once upon a time", max_tokens=64, temperature=0, ignore_eos=True)
        for _ in range(WARM):
            next(text)
        return [calls_of(lambda: next(text), root) for _ in range(TOKENS)]


def road() -> dict[str, int]:
    """Files, functions and calls of a token: medians."""
    tokens = roads()
    return {
        "files": int(statistics.median(len({file for file, _ in token}) for token in tokens)),
        "functions": int(statistics.median(len(set(token)) for token in tokens)),
        "calls": int(statistics.median(len(token) for token in tokens)),
    }


def of_tree(tree: Path) -> dict[str, int]:
    """The road in another tree, measured in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    command = [sys.executable, str(Path(__file__).resolve()), "--json"]
    return dict(json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout))


def main() -> None:
    """Print the figures, or every call of one token."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, action="append", help="a checkout; may be repeated. Default: this one.")
    parser.add_argument("--calls", action="store_true", help="print the calls of a token in order")
    parser.add_argument("--json", action="store_true", help="measure the importable zinc_rt and print JSON")
    options = parser.parse_args()
    if options.json:
        print(json.dumps(road()))
    elif options.calls:
        for file, function in min(roads(), key=len):
            print(f"{file:<40} {function}")
    else:
        for tree in options.tree or [Path(__file__).resolve().parents[1]]:
            print(tree.resolve().name, *(f"{name} {n}" for name, n in of_tree(tree).items()), sep="  ")


if __name__ == "__main__":
    main()

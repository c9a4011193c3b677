"""Change one operator or number at a time and see whether the tests notice.

    python benchmarks/mutation.py sampler                 # a sample of 60 mutants of one target
    python benchmarks/mutation.py all --sample 20 --seed 1
    python benchmarks/mutation.py pages --sample 0        # every mutant

Each mutant is one change in one module of a copy of the tree; the target's tests run against it and should fail. A
mutant survives if no test checks that place, or if the change has no effect (an equivalent mutant). Its line is printed
for a person to judge.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("zinc_rt", "amdgpu_emu", "tests", "docs", "benchmarks", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Target:
    """A target: modules, and the tests that should notice a change in them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS = {
    "sampler": Target(
        ("zinc_rt/sampling/sampler.py", "zinc_rt/sampling/arithmetic.py", "zinc_rt/sampling/stop.py"),
        ("tests/sampling/test_sampling.py", "tests/sampling/test_stop.py"),
    ),
    "reader": Target(
        ("zinc_rt/gguf/scan.py", "zinc_rt/gguf/metadata.py", "zinc_rt/gguf/tensors.py", "zinc_rt/gguf/part.py"),
        ("tests/gguf",),
    ),
    "packets": Target(
        ("zinc_rt/amdgpu/pm4/builder.py", "zinc_rt/amdgpu/pm4/fields.py", "zinc_rt/amdgpu/packets.py"),
        ("tests/amdgpu/pm4", "tests/amdgpu/queue/test_packets.py"),
    ),
    "pages": Target(
        ("zinc_rt/engine/page_tables.py", "zinc_rt/mem/arena.py", "zinc_rt/mem/plan.py", "zinc_rt/amdgpu/ranges.py"),
        ("tests/mem", "tests/engine/test_page_tables.py", "tests/amdgpu/queue/test_pool.py"),
    ),
    "scheduler": Target(
        ("zinc_rt/scheduler/fair_share.py", "zinc_rt/scheduler/preemption.py", "zinc_rt/scheduler/admission.py"),
        ("tests/scheduler",),
    ),
    "decoding": Target(
        ("zinc_rt/formats/decode.py", "zinc_rt/formats/decode_grids.py", "zinc_rt/formats/decode_scales.py"),
        ("tests/backends/cpu/test_rows.py", "tests/backends/cpu/test_products.py"),
    ),
}

_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A mutant: module, line, text before and after, and the whole new text of the module."""

    module: str
    line: int
    before: str
    after: str
    text: str


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every single change of a module, in the order of its lines."""
    tree = ast.parse(source)
    skipped = {id(node) for node in ast.walk(tree) for node in _without_effect(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for changed in _changes(node):
            before = ast.unparse(node)
            kept = copy.copy(node.__dict__)
            node.__dict__.update(changed)
            after, text = ast.unparse(node), ast.unparse(tree)
            node.__dict__.clear()
            node.__dict__.update(kept)
            yield Mutant(module, getattr(node, "lineno", 0), before, after, text)


def _without_effect(node: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, annotations and messages: changes there are no changes of behaviour that tests should see."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        yield from ast.walk(node)
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield from ast.walk(node.annotation)
    if isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield from ast.walk(node.returns)


def _changes(node: ast.AST) -> Iterator[dict[str, object]]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            if type(op) in _COMPARISONS:
                yield {"ops": [*node.ops[:i], _COMPARISONS[type(op)](), *node.ops[i + 1 :]]}
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield {"op": _ARITHMETIC[type(node.op)]()}
    elif isinstance(node, ast.BoolOp):
        yield {"op": ast.Or() if isinstance(node.op, ast.And) else ast.And()}
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield {"value": not node.value}
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield {"value": node.value + 1}
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield {"test": ast.UnaryOp(ast.Not(), node.test)}


def run_tests(tree: Path, tests: tuple[str, ...], seconds: float) -> bool | None:
    """Whether the tests pass; None when they take longer."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return None


def work(name: str, sample: int, seed: int) -> int:
    """Try a target's mutants and print those that survive; returns their number."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, tree / part, ignore=shutil.ignore_patterns("__pycache__", "results"))
            else:
                shutil.copy(source, tree / part)
        started = time.perf_counter()
        if run_tests(tree, target.tests, 600.0) is not True:
            raise SystemExit(f"{name}: the tests fail or hang without any change")
        usual = time.perf_counter() - started
        every = [m for module in target.modules for m in mutants(module, (ROOT / module).read_text(encoding="utf-8"))]
        chosen = every if not sample else random.Random(seed).sample(every, min(sample, len(every)))
        killed, survivors = 0, []
        for mutant in chosen:
            path = tree / mutant.module
            kept = path.read_text(encoding="utf-8")
            path.write_text(mutant.text, encoding="utf-8")
            if run_tests(tree, target.tests, 20.0 + 5.0 * usual) is True:
                survivors.append(mutant)
                print(
                    f"  survived {mutant.module}:{mutant.line}: {mutant.before}  ->  {mutant.after}"[:200], flush=True
                )
            else:
                killed += 1
            path.write_text(kept, encoding="utf-8")
    print(f"{name}: {killed} of {len(chosen)} mutants were noticed ({len(every)} in all); tests take {usual:.1f} s")
    return len(survivors)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--sample", type=int, default=60, help="mutants of a target; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    arguments = parser.parse_args()
    for name in TARGETS if arguments.target == "all" else [arguments.target]:
        work(name, arguments.sample, arguments.seed)


if __name__ == "__main__":
    main()

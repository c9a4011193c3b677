"""Whatever is written, the front end answers with an error of its own or with IR that LLVM's verifier accepts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.lang.mutants import mutants
from zinc_rt.lang import LangError, emit_module, irtext

SEED, COUNT = 20, 300

# llvmlite belongs in a process of its own.
VERIFY = """
import json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
layouts = {}
for name, triple, cpu, ir in json.load(sys.stdin):
    if triple not in layouts:
        layouts[triple] = str(llvm.Target.from_triple(triple).create_target_machine(cpu=cpu).target_data)
    try:
        llvm.parse_assembly(f'target datalayout = "{layouts[triple]}"\\n' + ir).verify()
    except RuntimeError as error:
        print(f"{name}: {error}")
"""


def test_mistyped_kernels_are_refused_or_become_valid_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(irtext, "MAX_INSTRUCTIONS", 6000)
    accepted, refused = [], []
    for i, (spec, target) in enumerate(mutants(SEED, COUNT)):
        try:
            module = emit_module(f"mutant {i} of {spec.function.name}", [spec], target)
        except LangError as error:
            refused.append(str(error))
        else:
            accepted.append((module.name, target.triple, target.cpu, module.ir))
    assert [message for message in refused if "\n" in message] == []
    assert len(refused) > COUNT / 3, "the changes are too tame to show anything"
    assert len(accepted) > COUNT / 10, "the changes are too wild to show anything"
    done = subprocess.run(
        [sys.executable, "-c", VERIFY],
        input=json.dumps(accepted),
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert done.stdout == ""

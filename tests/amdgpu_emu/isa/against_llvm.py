"""The decoder against llvm-mc: `python -m tests.amdgpu_emu.isa.against_llvm LLVM_MC [--each N] [--seed N] [--write]`.

Random encodings of every opcode number (`encodings`) are disassembled by LLVM and by us; our text is assembled by LLVM
again. Exits with 1 where the two disagree and no rule below explains it. --write records one encoding of every opcode,
with LLVM's text, in gfx1201.txt for the tests that run without LLVM.

Where we differ from LLVM 19 on purpose:
  * reserved bits that LLVM ignores (signs of integers, op_sel of 32-bit operands, neg and op_sel of integer VOP3P, the
    immediate of s_delay_alu), operands that no assembler takes (constants as vector registers), VOPD's banks, more than
    two scalar values: we refuse;
  * the upper half of a 16-bit register in VOP1, VOP2, VOPC: LLVM writes v3.h only with +real-true16, else a register
    that it marks as invalid; it does not know op_sel of the VOP3 forms of these, and inline floats of s_cmp_*_f16;
  * literals of 16-bit operands: LLVM writes all 32 bits, we the 16 that count;
  * two-source VOP3P: the third bit of op_sel_hi may be either; MTBUF and s_atc_probe* are not decoded;
  * s_barrier_wait: the number is signed, as newer versions write it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

from amdgpu_emu.isa.decoder import decode
from amdgpu_emu.isa.instruction import Encoding, Instruction, OperandKind, UnknownInstruction
from amdgpu_emu.isa.opcodes import names
from amdgpu_emu.isa.printer import text
from tests.amdgpu_emu.isa.encodings import encodings

SAMPLE = Path(__file__).with_name("gfx1201.txt")
_RESYNC = "\n" + "0x00 0x00 0x80 0xbf " * 4 + "\n"  # LLVM reads on after an error: s_nop brings it back in step
_WAVE64 = "-mattr=+wavefrontsize64,-wavefrontsize32"


def _run(tool: str, arguments: list[str], lines: str, wave: int) -> subprocess.CompletedProcess[str]:
    extra = [_WAVE64] if wave == 64 else []
    command = [tool, "-triple=amdgcn", "-mcpu=gfx1201", "-show-encoding", *extra, *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise SystemExit(f"{tool} ended with {done.returncode}: {done.stderr.strip()}")
    return done


def disassembled(tool: str, codes: list[bytes], wave: int) -> dict[bytes, str]:
    """LLVM's text of those that it knows."""
    done = _run(tool, ["-disassemble"], _RESYNC.join(" ".join(f"{b:#04x}" for b in c) for c in codes), wave)
    found = {}
    for line in done.stdout.splitlines():
        if m := re.match(r"\t(.*?)\s*; encoding: \[(.*)\]", line):
            found[bytes(int(b, 16) for b in m[2].split(","))] = m[1]
    return {c: found[c] for c in codes if c in found and "/*" not in found[c]}


def assembled(tool: str, lines: list[str], wave: int) -> list[bytes | None]:
    """LLVM's encoding of each line; none where it refuses."""
    bad = {int(n) for n in re.findall(r"<stdin>:(\d+):\d+: error", _run(tool, [], "\n".join(lines), wave).stderr)}
    good = [line for i, line in enumerate(lines, 1) if i not in bad]
    codes = re.findall(r"encoding: \[(.*?)\]", _run(tool, [], "\n".join(good), wave).stdout)
    queue = iter(bytes(int(b, 16) for b in c.split(",")) for c in codes)
    return [None if i in bad else next(queue) for i in range(1, len(lines) + 1)]


def ours(code: bytes, wave: int) -> tuple[Instruction | None, str]:
    try:
        found = decode(code, wave=wave)
    except UnknownInstruction as error:
        return None, str(error)
    return found, text(found)


def explained(i: Instruction, theirs: str, mine: str) -> bool:
    """A difference of spelling that stands in the module's text."""
    if i.name in {"s_barrier_wait", "s_version"}:
        return True
    if i.name == "v_cndmask_b32" and "dpp" in mine:
        return theirs.replace("|", "") == mine.replace("|", "")  # LLVM puts the second bar behind the next operand
    literal16 = any(o.kind is OperandKind.LITERAL and o.bits == 16 for o in i.src) or i.name.startswith("v_fma_mix")
    return literal16 and re.sub(r"0x\w+", "", theirs) == re.sub(r"0x\w+", "", mine)


def compare(tool: str, codes: Iterable[bytes], wave: int) -> tuple[Counter[str], list[str], dict[bytes, str]]:
    """How many of each outcome, the disagreements, and what both agree on."""
    unique = list(dict.fromkeys(codes))
    llvm = disassembled(tool, unique, wave)
    counts: Counter[str] = Counter()
    wrong, same = [], {}
    for code in unique:
        theirs, (mine, words) = llvm.get(code), ours(code, wave)
        if mine is None or theirs is None:
            counts[
                "both refuse" if mine is None and theirs is None else "only LLVM" if mine is None else "only we"
            ] += 1
        elif mine.size == len(code) and words == theirs:
            counts["same"] += 1
            same[code] = words
        elif explained(mine, theirs, words):
            counts["other spelling"] += 1
        else:
            counts["different"] += 1
            wrong.append(f"{code.hex()}: LLVM {theirs!r}, we {words!r}")
    back = assembled(tool, list(same.values()), wave)
    for (code, words), again in zip(same.items(), back, strict=True):
        if again is None:
            counts["not assembled again"] += 1
        elif again != code and not _alike(code, again, wave):
            wrong.append(f"{code.hex()}: {words!r} assembles to {again.hex()}")
    confirmed = {c: w for (c, w), b in zip(same.items(), back, strict=True) if b == c}
    counts["assembled to the same bytes"] = len(confirmed)
    return counts, wrong, confirmed


def _alike(code: bytes, again: bytes, wave: int) -> bool:
    """Two encodings of one instruction: bits without meaning, masks of ds_swizzle_b32 that select the same lanes."""
    one, other = decode(code, wave=wave), decode(again, wave=wave)
    cascade = one.modifiers.get("th", 0) & 4  # returns nothing: bit 0 may be either
    same = (one.dst, one.src, one.modifiers) == (other.dst, other.src, other.modifiers)
    return same or one.name == "ds_swizzle_b32" or bool(cascade)


def record(agreed: dict[int, dict[bytes, str]], seed: int) -> int:
    """One encoding of every opcode, and some more with DPP and of 64 lanes."""
    r = Random(seed)
    chosen: dict[tuple[str, str], str] = {}
    more: list[str] = []
    for wave, found in agreed.items():
        for code, words in sorted(found.items(), key=lambda _: r.random()):
            i = decode(code, wave=wave)
            line = f"{wave} {code.hex()} {words}"
            key = (i.format.value, f"{i.name} {i.second.name}" if i.second else i.name)
            if wave == 32 and key not in chosen:
                chosen[key] = line
            elif wave == 64 or "dpp_ctrl" in i.modifiers or "dpp8" in i.modifiers:
                more.append(line)
    lines = sorted([*chosen.values(), *r.sample(more, min(200, len(more)))], key=lambda s: s.split(" ", 2)[2])
    SAMPLE.write_text("\n".join(lines) + "\n", encoding="ascii")
    return len(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    agreed, failed = {}, False
    for wave in (32, 64):
        codes = [code for _, _, code in encodings(options.seed + wave, options.each)]
        counts, wrong, agreed[wave] = compare(options.tool, codes, wave)
        print(f"wave{wave}:", ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
        print("\n".join(wrong))
        failed = failed or bool(wrong)
    seen = {(f, n) for wave, found in agreed.items() for c in found for f, n in _names(c, wave)}
    for form in dict.fromkeys(f for f, _ in seen):
        missing = sorted(set(names(form)) - {n for f, n in seen if f is form})
        print(f"{form.value}: {len(names(form)) - len(missing)} of {len(names(form))} opcodes confirmed", *missing)
    if options.write:
        print(f"{record(agreed, options.seed)} encodings recorded")
    return int(failed)


def _names(code: bytes, wave: int) -> list[tuple[Encoding, str]]:
    i = decode(code, wave=wave)
    return [(i.format, i.name), *([(i.format, i.second.name)] if i.second else [])]


if __name__ == "__main__":
    sys.exit(main())

"""SPIR-V modules and PTX texts, read: which float operations they have, and which of these are not exact.

Numbers of SPIR-V are those of its specification (section 3) and of "OpenCL Extended Instruction Set". What is exact:
PTX ISA, "Floating Point Instructions": results with .rn are those of IEEE 754, and two instructions with it are never
fused; without .ftz nothing is flushed. OpenCL C, "Relative Error as ULPs": add, subtract, multiply, fma, rint, floor
and conversions are correctly rounded, of float64 division and square root, too.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_PTX_FLOAT = re.compile(r"\.(b?f\d+(x2)?|tf32|e\dm\d)\b")
_PTX_MOVES = re.compile(r"(ld|st|mov|selp)\.")
_PTX_EXACT = re.compile(
    r"(add|sub|mul|div|fma|sqrt|rcp)\.rn\.f(32|64)|(neg|abs)\.f(32|64)|(max|min)\.NaN\.f32|setp\.[a-z]+(\.and|\.or)?\.f(16|32|64)"
    r"|cvt\.rn\.f(32|64)\.[us]\d+|cvt\.rzi\.[us]\d+\.f(32|64)|cvt\.r[nm]i\.(f32\.f32|f64\.f64)"
    r"|cvt\.(rn\.f32\.f64|f64\.f32|rn\.f16\.f32|f32\.f16)"
)
_PTX_EXTREME = re.compile(r"(max|min)\.f(32|64)")
_NUMBER = re.compile(r"0[fd](?!8?0+$)[0-9A-F]+")
_PTX_LINE = re.compile(r"\s+(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s*(.*?);")


def ptx_instructions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Their names with all suffixes, and their operands."""
    for line in text.splitlines():
        if found := _PTX_LINE.match(line):
            yield found[1], [part.strip() for part in found[2].split(",")]


def ptx_floats(text: str) -> Counter[str]:
    """Float operations by name; what moves floats is none."""
    names = (name for name, _ in ptx_instructions(text))
    return Counter(name for name in names if _PTX_FLOAT.search(name) and not _PTX_MOVES.match(name))


def ptx_problems(text: str) -> list[str]:
    """What is not exact, or not known here to be. max and min of PTX drop a NaN: a comparison must ask for it, or the
    name say so (sm_80), and then +0 is above -0. With a number that is no zero they are what `x > number ? x : number`
    is.
    """
    out, asked = [], set()
    for name, operands in ptx_instructions(text):
        if name.startswith("setp.nan."):
            asked |= set(operands[1:])
        elif name == "call" or name.startswith("call."):
            out.append(f"{name} {operands[-1]}")
    for name, operands in ptx_instructions(text):
        if _PTX_EXTREME.fullmatch(name):
            if not any(map(_NUMBER.fullmatch, operands[1:])) and not all(x in asked for x in operands[1:]):
                out.append(f"{name} of {', '.join(operands[1:])}, of which no comparison says that it is no NaN")
            asked.add(operands[0])  # a number, where its operands are
        elif _PTX_FLOAT.search(name) and not _PTX_MOVES.match(name) and not _PTX_EXACT.fullmatch(name):
            out.append(name)
    return out


def shared_bytes(text: str) -> int:
    """Bytes of a workgroup's shared memory of a PTX text, without holes."""
    return sum(int(n) for n in re.findall(r"^\.shared .*?\[(\d+)\];", text, re.M))


def _numbers(text: str) -> dict[int, str]:
    words = text.split()
    return {int(number): name for name, number in zip(words[::2], words[1::2], strict=True)}


_EXT_INST, _EXECUTION_MODE, _ENTRY_POINT, _TYPE_FLOAT, _TYPE_VECTOR, _DECORATE, _SELECT = 12, 16, 15, 22, 23, 71, 169
_OTHER = _numbers(
    """Undef 1 Source 3 Name 5 Extension 10 ExtInstImport 11 MemoryModel 14 EntryPoint 15 ExecutionMode 16
    Capability 17 TypeVoid 19 TypeBool 20 TypeInt 21 TypeFloat 22 TypeVector 23 TypeArray 28 TypeStruct 30
    TypePointer 32
    TypeFunction 33 ConstantTrue 41 ConstantFalse 42 Constant 43 ConstantComposite 44 ConstantNull 46 Function 54
    FunctionParameter 55 FunctionEnd 56 Variable 59 Load 61 Store 62 InBoundsPtrAccessChain 70 PtrAccessChain 67
    Decorate 71 VectorExtractDynamic 77 VectorInsertDynamic 78 VectorShuffle 79 CompositeConstruct 80
    CompositeExtract 81 CompositeInsert 82 UConvert 113 SConvert 114 ConvertPtrToU 117 ConvertUToPtr 120 Bitcast 124
    SNegate 126 IAdd 128 ISub 130 IMul 132 UDiv 134 SDiv 135 UMod 137 SRem 138 IAddCarry 149 Any 154 All 155
    LogicalEqual 164 LogicalNotEqual 165 LogicalOr 166 LogicalAnd 167 LogicalNot 168 Select 169 IEqual 170 INotEqual 171
    UGreaterThan 172 SGreaterThan 173 UGreaterThanEqual 174 SGreaterThanEqual 175 ULessThan 176 SLessThan 177
    ULessThanEqual 178 SLessThanEqual 179 ShiftRightLogical 194 ShiftRightArithmetic 195 ShiftLeftLogical 196
    BitwiseOr 197 BitwiseXor 198 BitwiseAnd 199 Not 200 BitCount 205 ControlBarrier 224 MemoryBarrier 225
    AtomicLoad 227 AtomicStore 228 AtomicExchange 229 AtomicCompareExchange 230 AtomicIAdd 234 Phi 245 LoopMerge 246
    Label 248 Branch 249 BranchConditional 250 Switch 251 Return 253 Unreachable 255 LifetimeStart 256 LifetimeStop 257
    GroupNonUniformBroadcastFirst 338 GroupNonUniformShuffleXor 346 SDot 4450 SUDot 4452"""
)
_FLOATS = _numbers(
    """ConvertFToU 109 ConvertFToS 110 ConvertSToF 111 ConvertUToF 112 FConvert 115 FNegate 127 FAdd 129 FSub 131
    FMul 133 FDiv 136 Ordered 162 Unordered 163 FOrdEqual 180 FUnordEqual 181 FOrdNotEqual 182 FUnordNotEqual 183
    FOrdLessThan 184 FUnordLessThan 185 FOrdGreaterThan 186 FUnordGreaterThan 187 FOrdLessThanEqual 188
    FUnordLessThanEqual 189 FOrdGreaterThanEqual 190 FUnordGreaterThanEqual 191"""
)
_EXT_FLOATS = _numbers("fabs 23 floor 25 fma 26 rint 53 sqrt 61")
_EXT_OTHER = _numbers(
    "s_abs 141 clz 151 ctz 152 s_max 156 u_max 157 s_min 158 u_min 159 s_mul_hi 160 u_sub_sat 163 popcount 166"
)
_OF_ONE_TYPE = (128, 130, 132, 197, 198, 199)
_WIDE_ALONE = ("FDiv", "sqrt")
_CONVERSIONS = ((16, 32), (32, 16), (32, 64), (64, 32))
_CONTRACTION_OFF = 31
_DECORATIONS = {11: "BuiltIn", 22: "Constant", 38: "FuncParamAttr", 41: "LinkageAttributes", 44: "Alignment"}
_NO_TYPE = {11, *range(19, 40), 248}  # ExtInstImport, types, Label
_NO_RESULT = {3, 5, 10, 14, 15, 16, 17, 56, 62, 71, 224, 225, 228, 246, 247, 249, 250, 251, 253, 255, 256, 257}
_WRAPS = {4469: "NoSignedWrap", 4470: "NoUnsignedWrap"}


@dataclass
class SpirvModule:
    """The instructions of a module: their numbers and operands, which begin with the result's type where there is one.

    twice: ids that are defined again. defined: by the result's id, of those that compute something; widths: bits of
    float types and of vectors of them.
    """

    instructions: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    results: set[int] = field(default_factory=set)
    twice: list[int] = field(default_factory=list)
    defined: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    types: dict[int, int] = field(default_factory=dict)
    widths: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, code: bytes) -> SpirvModule:
        words = struct.unpack(f"<{len(code) // 4}I", code)
        assert words[0] == 0x07230203
        out, at = cls(), 5
        while at < len(words):
            size, number = words[at] >> 16, words[at] & 0xFFFF
            out._add(number, words[at + 1 : at + size])
            at += size
        return out

    def _add(self, number: int, operands: tuple[int, ...]) -> None:
        self.instructions.append((number, operands))
        if number not in _NO_RESULT:
            result = operands[0 if number in _NO_TYPE else 1]
            if result in self.results:
                self.twice.append(result)
            self.results.add(result)
        if number == _TYPE_FLOAT:
            self.widths[operands[0]] = operands[1]
        elif number == _TYPE_VECTOR and operands[1] in self.widths:
            self.widths[operands[0]] = self.widths[operands[1]]
        elif number not in _NO_RESULT and number not in _NO_TYPE:
            self.defined[operands[1]] = (number, operands)
            self.types[operands[1]] = operands[0]

    def name(self, number: int, operands: tuple[int, ...]) -> str:
        """As the specification has it, of those that are known here; else its number."""
        if number == _EXT_INST:
            inner = operands[3]
            return _EXT_FLOATS.get(inner) or _EXT_OTHER.get(inner) or f"OpenCL.std {inner}"
        return _FLOATS.get(number) or _OTHER.get(number) or f"instruction {number}"

    def floats(self) -> Counter[str]:
        """Float operations by name and width; what moves floats is none."""
        out: Counter[str] = Counter()
        for number, operands in self.instructions:
            if number in _FLOATS or (number == _EXT_INST and operands[3] in _EXT_FLOATS):
                first = operands[4 if number == _EXT_INST else 2]
                width = self.widths.get(operands[0]) or self.widths[self.types[first]]
                out[f"{self.name(number, operands)} f{width}"] += 1
        return out

    def problems(self) -> list[str]:
        """What is not exact, or not known here to be."""
        return [
            *(f"number {n} is defined twice" for n in self.twice),
            *self._operations(),
            *self._decorations(),
            *self._entry_points(),
        ]

    def _operations(self) -> Iterator[str]:
        for number, operands in self.instructions:
            name = self.name(number, operands)
            if name.startswith(("instruction ", "OpenCL.std ")):
                yield f"{name}, which is not known here"
            if number in _OF_ONE_TYPE and {self.types[x] for x in operands[2:]} != {operands[0]}:
                yield f"{name} of other widths than its result's"
            if name in _WIDE_ALONE and self.widths[operands[0]] != 64:
                yield f"{name} of float{self.widths[operands[0]]}"
            if number in _FLOATS or (number == _EXT_INST and operands[3] in _EXT_FLOATS):
                yield from self._widths(name, operands, 4 if number == _EXT_INST else 2)

    def _widths(self, name: str, operands: tuple[int, ...], first: int) -> Iterator[str]:
        to, given = self.widths.get(operands[0]), self.widths.get(self.types[operands[first]])
        if name == "FConvert":
            if (given, to) not in _CONVERSIONS:
                yield f"FConvert of float{given} to float{to}"
        elif 16 in (to, given) and not name.startswith(("FOrd", "FUnord")):
            yield f"{name} of float16"
        elif name.startswith("ConvertFTo") and self.defined[operands[first]][0] != _SELECT:
            yield f"{name} of what was not kept within limits"

    def _decorations(self) -> Iterator[str]:
        built_in = {ops[0] for number, ops in self.instructions if number == _DECORATE and ops[1] == 11}
        for number, operands in self.instructions:
            if number != _DECORATE:
                continue
            kind = operands[1]
            if kind == 39 and operands[2:] == (0,):
                continue  # FPRoundingMode: to nearest even
            if kind not in _DECORATIONS and kind not in _WRAPS:
                yield f"decoration {kind}"
            elif kind == 41 and operands[-1] == 1 and operands[0] not in built_in:
                yield "a function or variable that another module must bring"

    def _entry_points(self) -> Iterator[str]:
        modes: dict[int, set[int]] = {}
        for number, operands in self.instructions:
            if number == _EXECUTION_MODE:
                modes.setdefault(operands[0], set()).add(operands[1])
        for number, operands in self.instructions:
            if number == _ENTRY_POINT and _CONTRACTION_OFF not in modes.get(operands[1], ()):
                yield "an entry point without ContractionOff"


def floats_of(target: str, code: bytes) -> Mapping[str, int]:
    """Float operations of a kernel's code by name."""
    return ptx_floats(code.decode()) if target.startswith("ptx") else SpirvModule.of(code).floats()


def problems_of(target: str, code: bytes) -> list[str]:
    """What in a kernel's code is not exact."""
    return ptx_problems(code.decode()) if target.startswith("ptx") else SpirvModule.of(code).problems()

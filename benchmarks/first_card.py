"""What `first_card.sh` runs in its environment: each step in a process of its own, then the report.

A step that fails, or takes too long, is told in the report, and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 520.0
"""Seconds from the script's beginning on, the environment's installation included."""
KINDS = ("qwen3", "qwen3moe", "qwen35", "gemma3", "gpt-oss", "deepseek2-lite")
"""Dense, experts, delta net, gemma, gpt-oss, latent attention: names of `tests.models.families.CASES`."""
MODELS = ("qwen3-0.6b-q8_0", "qwen3-0.6b-f16", "qwen3-8b-q4_k_m")
REDUCED_KINDS, REDUCED_MODELS = KINDS[:1], ("toy-q8_0",)
WAYS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.9, "top_k": 20, "seed": 3, "frequency_penalty": 0.3},
    {"temperature": 1.1, "top_k": 0, "top_p": 0.9, "seed": 4},
)


def bits(kind: str, device: str) -> dict[str, Any]:
    """A small model of a kind on the device and on the CPU: rows whose logits differ."""
    import tempfile

    import numpy as np

    from tests.helpers import engine_for, run_tokens
    from tests.models.families import CASES
    from tests.models.families.build import write_case
    from zinc_rt.gguf import GGMLType

    found: dict[str, Any] = {}
    tokens = [3, 17, 5, 40, 41, 7, 9, 12, 33, 8, 2, 60]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("F32", "Q8_0"):
            path = write_case(Path(folder, f"{name}.gguf"), CASES[kind], GGMLType[name]).path
            logits = []
            for where in ("cpu", device):
                with engine_for(path, n_ctx=64, n_batch=8, **_choice(where)) as engine:
                    slot = engine.open_sequence()
                    parts = [run_tokens(engine, slot, tokens[:8], 8), run_tokens(engine, slot, tokens[8:], 1, 8)]
                    logits.append(np.concatenate(parts).view(np.uint32))
            found[name] = {"rows": len(tokens), "rows that differ": int((logits[0] != logits[1]).any(axis=1).sum())}
    return found


def texts(device: str, tokens: int) -> dict[str, Any]:
    """Texts of the model in the package on both, one alone and several at once."""
    import zinc_rt

    answers = []
    for where in ("cpu", device):
        with zinc_rt.load(device=where, n_ctx=256) as model:
            found = [model.generate("Once upon a time", max_tokens=tokens, **way).text for way in WAYS]
            found += [t.text for t in model.generate(["A", "The", "Once"], seed=5, max_tokens=tokens)]
            answers.append(found)
    differing = [i for i, (a, b) in enumerate(zip(*answers, strict=True)) if a != b]
    return {"texts": len(answers[0]), "texts that differ": len(differing), "first": answers[1][0]}


def _choice(device: str) -> dict[str, Any]:
    from zinc_rt.engine.engine import parse_device

    choice = parse_device(device)
    return {"device": choice.device, "card": choice.card}


def card() -> dict[str, Any]:
    """The NVIDIA GPUs, and the bytes a second that the memory of the first one moves by its clock."""
    from zinc_rt.cuda.devices import find_cards

    cards, reason = find_cards()
    names = ("name", "memory", "architecture", "pci", "driver", "multiprocessors", "bandwidth", "lacks")
    return {"cards": [{name: getattr(c, name) for name in names} for c in cards], "reason": reason}


class Steps:
    """Runs steps one after the other while there is time. found: by name, what each gave."""

    def __init__(self, out: Path, began: float) -> None:
        self.out, self._end = out, began + BUDGET
        self.found: dict[str, dict[str, Any]] = {}

    def run(self, name: str, command: list[str], limit: float) -> str:
        """Its output; "" where it did not end well."""
        left = min(limit, self._end - time.time())
        if left < 5:
            self.found[name] = {"state": "skipped: no time"}
            return ""
        began = time.time()
        log = self.out / f"{name.replace(' ', '_')}.log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with log.open("w") as errors:
            try:
                output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
                done = subprocess.run(command, check=False, cwd=ROOT, env=environment, timeout=left, **output)
                state, text = "ok" if done.returncode == 0 else f"exit code {done.returncode}", done.stdout
            except subprocess.TimeoutExpired as error:
                out = error.stdout or b""
                state, text = f"stopped after {left:.0f} s", out.decode() if isinstance(out, bytes) else out
        with log.open("a") as errors:
            errors.write(text)
        self.found[name] = {"state": state, "seconds": round(time.time() - began, 1), "log": log.name}
        print(f"{name}: {state}, {time.time() - began:.1f} s", flush=True)
        return text if state == "ok" else ""

    def own(self, name: str, *arguments: str, limit: float) -> None:
        """A function of this file in a process of its own."""
        text = self.run(name, [sys.executable, str(Path(__file__).resolve()), "--step", *arguments], limit)
        if text:
            self.found[name] |= json.loads(text.splitlines()[-1])


def bench(steps: Steps, model: str, device: str, bandwidth: int) -> None:
    """Write a model and measure it. bandwidth: of the card's memory, 0 where that is not known."""
    folder = steps.out / "models"
    path = folder / f"{model}.gguf"
    if not path.exists():
        writer = [sys.executable, str(ROOT / "benchmarks/random_model.py"), str(folder), model]
        if not steps.run(f"write {model}", writer, 120):
            return
    options = ["-p", "128,512", "-n", "64", "-d", "0,512", "-r", "3", "-o", "json"]
    command = [sys.executable, "-m", "zinc_rt", "bench", "-m", str(path), "--device", device, *options]
    text = steps.run(f"bench {model}", command, 150)
    path.unlink()
    if text:
        facts = json.loads(text[text.index("{") :])
        for row in facts["results"]:
            if bandwidth and row["gb_per_s"]:
                row["share"] = row["gb_per_s"] * 1e9 / bandwidth
        steps.found[f"bench {model}"] |= {"results": facts["results"], "device": facts["device"], "isa": facts["isa"]}


def lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """The report for people."""
    out = []
    for name, step in found.items():
        told = {k: v for k, v in step.items() if k not in ("state", "seconds", "log", "results", "cards")}
        out.append(f"{name}: {step['state']}" + (f" {json.dumps(told, ensure_ascii=False)}" if told else ""))
        out += [f"    {json.dumps(c)}" for c in step.get("cards", ())]
        for row in step.get("results", ()):
            share = f", {row['gb_per_s']:.0f} GB/s" if row["gb_per_s"] else ""
            share += f", {row['share']:.0%} of the memory's" if row["share"] else ""
            out.append(f"    {row['test']} {row['tokens']} behind {row['depth']}: {row['median']:.1f} tokens/s{share}")
    return out


def differs(step: dict[str, Any]) -> bool:
    """Whether a step has found other bits than the CPU's."""
    parts = [step, *(v for v in step.values() if isinstance(v, dict))]
    return any(part.get("rows that differ") or part.get("texts that differ") for part in parts)


def main() -> None:
    """Run all steps; exit code 1 where one failed or bits differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("first_card"))
    parser.add_argument("--began", type=float, default=time.time(), help="when the script began, Unix time")
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        name, *rest = options.step
        given = {"bits": bits, "texts": lambda device, n: texts(device, int(n)), "card": card}[name](*rest)  # type: ignore[operator]
        print(json.dumps(given))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    steps, device = Steps(options.out.resolve(), options.began), options.device
    check = [sys.executable, "-m", "zinc_rt", "check", *(["--gpu"] if device != "cpu" else [])]
    steps.own("card", "card", limit=30)
    steps.run("check", check, 90)
    if device != "cpu":
        on_card = ["--gpu", "--gpu-card", device, "tests/backends/drivers/test_card.py"]
        steps.run("tests", [sys.executable, "-m", "pytest", "-q", "-n", "0", *on_card], 90)
    for kind in REDUCED_KINDS if options.reduced else KINDS:
        steps.own(f"bits {kind}", "bits", kind, device, limit=80)
    steps.own("texts", "texts", device, "8" if options.reduced else "60", limit=90)
    cards = steps.found["card"].get("cards", ())
    number = int(device.partition(":")[2] or 0)
    fast = cards[number]["bandwidth"] if device.startswith("cuda") and number < len(cards) else 0
    for model in REDUCED_MODELS if options.reduced else MODELS:
        bench(steps, model, device, fast)
    (options.out / "report.json").write_text(json.dumps(steps.found, indent=1, ensure_ascii=False) + "\n")
    report = "\n".join(lines(steps.found)) + "\n"
    (options.out / "report.txt").write_text(report)
    print(report, end="")
    failed = [name for name, step in steps.found.items() if step["state"] != "ok" or differs(step)]
    print(f"wrote {options.out}/report.txt; " + (f"look at: {', '.join(failed)}" if failed else "all is well"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""One row of the table on the llama.cpp in xllamacpp, a wheel that is prebuilt for many processors.

    PYTHON benchmarks/peer_wheel.py MODEL '{"kind": "decode", "n": 128, "depth": 0, "streams": 1, ...}'

PYTHON is that of an environment with `xllamacpp`; nothing else here may be imported. Prints a JSON object: tokens/s by
the server's own clocks, which leave reading and writing of requests out. Of several texts: all tokens by the longest
time.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import xllamacpp


def server(model: str, row: dict[str, Any]) -> Any:
    """A server without a prompt cache, whose slots take the row's sequences."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = (row["depth"] + row["n"] + 16) * row["streams"]
    params.n_parallel = row["streams"]
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = row["threads"]
    kinds = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = (
        kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED if row["flash"] == "on" else kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    params.verbosity = -1
    params.warmup = True
    return xllamacpp.Server(params)


def text(engine: Any, n_prompt: int, n: int, first: int) -> dict[str, float]:
    """The timings of a text of n tokens behind a prompt of token ids."""
    request = {
        "prompt": [100 + (first + 7 * i) % 300 for i in range(n_prompt)],
        "n_predict": n,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": 0,
        "top_k": 1,
        "stream": False,
    }
    answer = engine.handle_completions(request)
    found = json.loads(answer) if isinstance(answer, str | bytes) else answer
    return dict(found["timings"])


def measured(engine: Any, row: dict[str, Any]) -> float:
    """Tokens per second."""
    if row["kind"] == "prefill":
        return float(text(engine, row["n"], 1, 1)["prompt_per_second"])
    timings: list[dict[str, float]] = []
    threads = [
        threading.Thread(target=lambda i=i: timings.append(text(engine, max(1, row["depth"]), row["n"], i)))
        for i in range(row["streams"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(sum(t["predicted_n"] for t in timings) / max(t["predicted_ms"] for t in timings) * 1e3)


def main() -> None:
    """Measure once, after a short text."""
    model, row = sys.argv[1], json.loads(sys.argv[2])
    engine = server(model, row)
    text(engine, 8, 4, 0)
    print(json.dumps({"tokens/s": measured(engine, row), "version": xllamacpp.__version__}), flush=True)


if __name__ == "__main__":
    main()

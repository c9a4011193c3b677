"""Run a model file in llama.cpp and print what it says of prompts: a child process of the tests, in any Python.

    python judge.py model.gguf < request.json

The request is {"prompts": [[token, ..], ..], "n_vocab": n, "embedding": null or a pooling's name}; the answer, a line
that begins with ANSWER, is a list of rows: log-probabilities of all tokens after each prompt, or its vector.
"""

from __future__ import annotations

import importlib
import json
import sys
import urllib.request
from typing import Any

PLAIN_TOKEN = 40
"""What the server has to generate: it keeps back the probabilities of an end token, or of part of a character."""


def ask(address: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=100) as answer:
        return json.load(answer)


def start(path: str, embedding: str | None) -> Any:
    xllamacpp = importlib.import_module("xllamacpp")  # optional: nothing that is installed with the tests has it

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 512
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.fit_params = False
    params.cache_prompt = False
    params.use_jinja = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.verbosity = 1
    if embedding is not None:
        params.embedding = True
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{embedding}")
    return xllamacpp.Server(params)


def main() -> None:
    request = json.load(sys.stdin)
    n_vocab, embedding = request["n_vocab"], request.get("embedding")
    server = start(sys.argv[1], embedding)
    rows = []
    for prompt in request["prompts"]:
        if embedding is not None:
            found = ask(
                server.listening_address,
                "/embedding",
                {"content": prompt, "embd_normalize": 2 - 3 * (embedding == "RANK")},
            )
            rows.append(found[0]["embedding"][0])
            continue
        # The probabilities are those before sampling; the bias is not in them.
        body = {"prompt": prompt, "n_predict": 1, "n_probs": n_vocab, "logit_bias": [[PLAIN_TOKEN, 1e6]]}
        found = ask(server.listening_address, "/completion", body)
        row = [float("nan")] * n_vocab
        for entry in found["completion_probabilities"][0]["top_logprobs"]:
            row[entry["id"]] = entry["logprob"]
        rows.append(row)
    print("ANSWER" + json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    import os

    os._exit(0)  # the server's threads would be waited for

"""The environment variables that the runtime reads, each with its effect and with the option that does the same.

`docs/use/environment.md` shows this table, and `zinc env` which of them are set. A test compares it with the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Variable:
    """An environment variable.

    name: as it is set. meaning: what it does. flag: the option or argument that says the same and goes before it; empty
    for none. secret: its value is shown to nobody.
    """

    name: str
    meaning: str
    flag: str = ""
    secret: bool = False


DEVICE: Final = Variable(
    "ZINC_RT_TIER", "the device that runs a model: cpu, gpu, gpu:cs, emu, auto and others", "--device"
)
CACHE_DIR: Final = Variable("ZINC_RT_CACHE_DIR", "the folder of compiled kernels", "--cache-dir")
MATRIX_ROWS: Final = Variable(
    "ZINC_RT_MATRIX_ROWS", "rows that go through matrix registers at once: 0, 16 or 32; unset: what is fastest here"
)

OURS: Final = (DEVICE, CACHE_DIR, MATRIX_ROWS)
"""Of this project."""

OTHERS: Final = (
    Variable("XDG_CACHE_HOME", "the folder in which `zinc_rt` is the folder of compiled kernels; unset: ~/.cache"),
    Variable("XDG_STATE_HOME", "the folder in which `zinc_rt` has the history of `zinc chat`; unset: ~/.local/state"),
    Variable("HOME", "the home folder, for `~`; unset: what the system has for the user"),
    Variable("NO_COLOR", "set to anything: no colours, and answers as the model writes them"),
    Variable("TERM", "dumb, unknown or unset: no colours, no progress bars"),
    Variable("USER", "kept out of the report of `zinc check --report`"),
    Variable("TZ", "the time zone in which chat templates write dates"),
    Variable("LD_LIBRARY_PATH", "passed on to the process that renders chat templates"),
    Variable("OPENBLAS_NUM_THREADS", "threads of NumPy's products; the command sets it to 1 where it is unset"),
)
"""Of the system, as the code here reads them."""

HUB: Final = (
    Variable("HF_HOME", "the folder of the hub's files; `hub` in it has the models. Unset: ~/.cache/huggingface"),
    Variable("HF_HUB_CACHE", "the folder of downloaded models itself"),
    Variable("HF_TOKEN", "the access token for models that ask for one", secret=True),
    Variable("HF_ENDPOINT", "the address of a mirror of the hub"),
    Variable("HF_HUB_OFFLINE", "1: nothing is asked over the network; what was downloaded is used"),
    Variable("HF_HUB_ETAG_TIMEOUT", "seconds until a connection to the hub must stand. Unset: 10"),
    Variable("HF_HUB_DOWNLOAD_TIMEOUT", "seconds without data after which the hub is asked anew. Unset: 10"),
    Variable("HTTPS_PROXY", "the proxy through which the hub is reached", secret=True),
    Variable("HTTP_PROXY", "the same for addresses without TLS", secret=True),
    Variable("NO_PROXY", "hosts that are reached without a proxy"),
)
"""Of the library that downloads models."""

TRACES: Final = (
    Variable("OTEL_SERVICE_NAME", "the name of the server in traces. Unset: zinc, of a router zinc-route"),
    Variable("OTEL_RESOURCE_ATTRIBUTES", "more about it, as `deployment.environment.name=test,host.name=a`"),
    Variable("OTEL_EXPORTER_OTLP_HEADERS", "headers for the collector, as `authorization=Bearer%20KEY`", secret=True),
    Variable("OTEL_EXPORTER_OTLP_CERTIFICATE", "a file with the certificates behind the collector's own"),
    Variable("OTEL_EXPORTER_OTLP_TIMEOUT", "seconds for a message to the collector, tries anew included. Unset: 10"),
    Variable(
        "OTEL_TRACES_SAMPLER",
        "which requests are traced, as `parentbased_traceidratio`. Unset: all, but where the caller says no",
    ),
    Variable("OTEL_TRACES_SAMPLER_ARG", "what goes with it, as `0.1` for one in ten"),
)
"""Of the library that sends traces."""

VARIABLES: Final = (*OURS, *OTHERS, *HUB, *TRACES)

OPTION_PREFIXES: Final = {"serve": "ZINC_SERVE_", "route": "ZINC_ROUTE_"}
"""Verbs all of whose options have a variable, and how its name begins."""
SECRET_OPTIONS: Final = ("_API_KEY",)
"""How names of such variables end whose values are shown to nobody."""

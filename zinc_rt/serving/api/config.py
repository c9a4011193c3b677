"""The settings of the command line and of the file of tenants, all checked before the first is used."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from zinc_rt.errors import UsageError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import MAX_TENANTS, QoS, TenantShare
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.logs import Level
from zinc_rt.serving.api.media import MediaRule
from zinc_rt.serving.api.tls import Certificate
from zinc_rt.serving.api.web import WebRule
from zinc_rt.serving.records.store import DEFAULT_BYTES, KeepRecords
from zinc_rt.utils.checks import show

DEFAULT_TENANT: Final = "default"
DEFAULTS: Final = SamplingParams(max_tokens=None)
"""What requests omit, unless the command line says otherwise. No seed: a new one; no limit: the context's."""
TENANT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class TenantConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one tenant is served; None means no limit beside the server's own.

    weight: of its share of the engine's time. kv_share: of the memory of the cache. active: requests computed at once.
    queued, queued_tokens: requests that wait, and tokens of their prompts. max_context: tokens of prompt and answer.
    seconds: until the last token. may_log_prompts: prompts may stand in the log. records: what
    is kept of its requests where the server keeps records. admin: may read metrics and all
    requests.
    """

    weight: float = 1.0
    qos: QoS = QoS.standard
    kv_share: float = 1.0
    active: int | None = None
    queued: int | None = None
    queued_tokens: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_context: int | None = None
    max_tokens: int | None = None
    seconds: float | None = None
    may_log_prompts: bool = False
    records: KeepRecords = KeepRecords.full
    admin: bool = False

    def share(self, name: str) -> TenantShare:
        """The tenant's share, as the engine takes it."""
        return TenantShare(name, weight=self.weight, kv_share=self.kv_share, max_active=self.active)


class MetricsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The names of metrics. names: "zinc", or "vllm" for vLLM's names beside ours."""

    names: Literal["zinc", "vllm"] = "zinc"


_LEAST: Final = {
    "active": 1, "queued": 0, "queued_tokens": 1, "requests_per_minute": 0, "tokens_per_minute": 0, "max_context": 2,
    "max_tokens": 1, "seconds": 0, "weight": 0, "kv_share": 0,
}  # fmt: skip
_MOST: Final = 1 << 40
_OPEN: Final = ("requests_per_minute", "tokens_per_minute", "seconds", "weight", "kv_share")


@dataclass(frozen=True, slots=True)
class TenantConfigs:
    """All tenants. A name that the file does not have is served as the tenant `default` is. vllm_names: whether the
    file asks for metrics by vLLM's names, too.
    """

    named: dict[str, TenantConfig] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    vllm_names: bool = False

    def get(self, name: str) -> TenantConfig:
        """The record of a tenant."""
        return self.named.get(name) or self.named.get(DEFAULT_TENANT) or TenantConfig()


def read_tenants(path: Path) -> TenantConfigs:
    """The file of tenants: a table `[tenants.NAME]` each, `[limits]` and `[metrics]` for the server.

    Raises `UsageError`.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {str(error)[:200]}") from None
    if unknown := sorted(tree.keys() - {"tenants", "limits", "metrics"}):
        raise UsageError(f"{path}: unknown table {show(unknown[0])}; known: limits, metrics, tenants")
    try:
        limits = msgspec.convert(_known(tree.get("limits", {}), Limits), Limits)
        named = msgspec.convert(tree.get("tenants", {}), dict[str, TenantConfig])
        metrics = msgspec.convert(tree.get("metrics", {}), MetricsTable)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {str(error)[:200]}") from None
    if len(named) >= MAX_TENANTS:
        raise UsageError(f"{path}: there are {len(named)} tenants; it must be fewer than {MAX_TENANTS}")
    for name, tenant in named.items():
        if not TENANT_NAME.fullmatch(name):
            raise UsageError(f"{path}: tenant {show(name)} must be 1 to 32 of a-z, 0-9 and -, not - first")
        for key, least in _LEAST.items():
            value = getattr(tenant, key)
            if value is not None and not abs(value) <= _MOST:  # nor where it is NaN
                wanted = f"a finite number, at most {_MOST}"
                raise UsageError(f"{path}: tenants.{name}.{key} is {show(value)}; it must be {wanted}")
            if value is not None and not (value > least if key in _OPEN else value >= least):
                sign = "more than" if key in _OPEN else "at least"
                raise UsageError(f"{path}: tenants.{name}.{key} is {value}; it must be {sign} {least}")
        if tenant.kv_share > 1:
            raise UsageError(f"{path}: tenants.{name}.kv_share is {tenant.kv_share}; it must be at most 1")
    for key in Limits.__slots__:
        if not 0 < getattr(limits, key) <= _MOST:
            raise UsageError(
                f"{path}: limits.{key} is {show(getattr(limits, key))}; it must be from above 0 to {_MOST}"
            )
    return TenantConfigs(named, limits, metrics.names == "vllm")


def _known(table: Any, kind: type) -> Any:
    """The table, after a look for names that `kind` has not: dataclasses ignore them."""
    if isinstance(table, dict):
        for name in table:
            if name not in kind.__slots__:  # type: ignore[attr-defined]
                raise msgspec.ValidationError(f"Object contains unknown field `{name}` - at `$.limits`")
    return table


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The command line. drain: seconds that running requests get after SIGTERM. keys, tenants: files, or None.
    records: the file of the ledger and of records; None keeps neither. receipt_key: the folder of the key that signs
    receipts; None leaves them unsigned. vllm_names: metrics have vLLM's names, too.
    audit: of so many recorded requests one is computed again, 0 for none. api_keys: keys of the tenant `default`,
    beside those of the file. defaults: what requests omit. log: "json" or "text", None for text at a terminal.
    web: which browsers' requests are answered. certificate: for TLS, None for none. media: where pictures may
    come from. pulls, deletes: administrators may have models downloaded and deleted. otlp_endpoint: where traces are
    sent to, None for nowhere.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: Path | None = None
    tenants: Path | None = None
    no_auth: bool = False
    strict: bool = False
    drain: float = 30.0
    alias: tuple[str, ...] = ()
    records: Path | None = None
    records_bytes: int = DEFAULT_BYTES
    receipt_key: Path | None = None
    vllm_names: bool = False
    audit: int = 0
    api_keys: tuple[str, ...] = ()
    defaults: SamplingParams = DEFAULTS
    log: Literal["json", "text"] | None = None
    web: WebRule = field(default_factory=WebRule)
    certificate: Certificate | None = None
    media: MediaRule = field(default_factory=MediaRule)
    log_level: Level = "info"
    pulls: bool = False
    deletes: bool = False
    otlp_endpoint: str | None = None

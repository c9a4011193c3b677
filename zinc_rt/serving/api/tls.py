"""TLS: the certificate and key of a server, checked before anything else and read again on SIGHUP."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.errors import UsageError


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM: the certificate, with those of its issuers behind it, and its key; without one the certificate's
    file has it.
    """

    file: Path
    key: Path | None = None

    @classmethod
    def of(cls, file: Path | None, key: Path | None) -> Certificate | None:
        """What a command line gives; None for no TLS. Raises `UsageError`."""
        if file is None and key is not None:
            raise UsageError(f"--ssl-keyfile {key} is of no use alone; give --ssl-certfile")
        return None if file is None else cls(file, key)

    def context(self) -> ssl.SSLContext:
        """What encrypts connections, TLS 1.2 and later. Raises `UsageError`."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load_into(made)
        return made

    def load_into(self, context: ssl.SSLContext) -> None:
        """Read the files; connections from now on use them. Raises `UsageError`, and then the context may not be
        used.
        """
        key = self.key or self.file
        for path in (self.file, key):
            try:
                path.read_bytes()
            except OSError as error:
                raise UsageError(f"{path}: {error.strerror or error}") from None
        try:
            context.load_cert_chain(self.file, key, password=_no_password)
        except _Encrypted:
            raise UsageError(f"{key} has a key that needs a password; give one without") from None
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise UsageError(f"the key in {key} is not that of the certificate in {self.file}") from None
            why = (error.reason or "it is no PEM").replace("_", " ").lower()
            raise UsageError(f"{self.file} and {key} have no usable certificate and key in PEM: {why}") from None


def trusting(issuers: Path) -> ssl.SSLContext:
    """What checks servers' certificates against those in a file of PEM. Raises `UsageError`."""
    try:
        return ssl.create_default_context(cafile=issuers)
    except ssl.SSLError:
        raise UsageError(f"{issuers} has no certificate in PEM") from None
    except OSError as error:
        raise UsageError(f"{issuers}: {error.strerror or error}") from None


class _Encrypted(Exception):
    """The key asks for a password."""


def _no_password() -> str:
    raise _Encrypted

"""Signatures over entries of the chain of receipts: Ed25519, by `cryptography`, the extra `receipts`."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from zinc_rt.errors import UsageError, ZincError

KEY_FILE: Final = "receipts.key"
PUBLIC_FILE: Final = "receipts.pub"
_BACKEND: Final = "software-ed25519"
_EXTRA: Final = "signatures need the package cryptography: pip install 'zinc-rt[receipts]'"


class SigningError(ZincError):
    """The key of a server cannot be read, made or used."""


class SignatureState(StrEnum):
    """What is known of an entry's signature."""

    valid = "valid"
    wrong = "wrong"
    unsigned = "unsigned"
    unchecked = "unchecked"
    """`cryptography` is not installed."""


def can_sign() -> bool:
    """Whether the extra is installed."""
    return find_spec("cryptography") is not None


class ReceiptSigner:
    """The key of a server, in a folder: its private part in `receipts.key` (mode 0600), its public part in
    `receipts.pub`.

    Attributes:
        key_id: the hash of the public part.
    """

    def __init__(self, folder: Path) -> None:
        """Read the key, or make one. Raises `SigningError`, and `UsageError` without the extra."""
        if not can_sign():
            raise UsageError(f"receipts cannot be signed: {_EXTRA}")
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        path = folder / KEY_FILE
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                made = Ed25519PrivateKey.generate()
                form = serialization.PrivateFormat.PKCS8
                _write_new(path, made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise SigningError(f"{path} can be read by others (mode {mode:o}); chmod 600 it, or make a new key")
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise SigningError(f"the key in {path} cannot be used: {error.strerror or error}") from None
        except (ValueError, TypeError) as error:
            raise SigningError(f"{path} has no private key in PEM without a password: {str(error)[:100]}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise SigningError(f"{path} has a key of another kind; it must be Ed25519")
        self._key = key
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        self._public = key.public_key().public_bytes(serialization.Encoding.PEM, spki).decode()
        self.key_id = _key_id(key.public_key())
        try:
            if not (public := folder / PUBLIC_FILE).exists() or public.read_text() != self._public:
                public.write_text(self._public)
        except (OSError, ValueError) as error:
            raise SigningError(f"{folder / PUBLIC_FILE} cannot be written: {error}") from None

    def sign(self, chain: str) -> dict[str, Any]:
        """The signature over an entry's hash, with the public key."""
        return {
            "backend": _BACKEND,
            "alg": "Ed25519",
            "key_id": self.key_id,
            "pubkey_pem": self._public,
            "signed": "chain",
            "sig": base64.b64encode(self._key.sign(chain.encode())).decode(),
            "pcr_policy": None,
        }


def _write_new(path: Path, text: bytes) -> None:
    """A file for the owner alone, complete or not there. Raises `OSError`."""
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # fails where another server has made one meanwhile
    except FileExistsError:
        pass
    finally:
        part.unlink(missing_ok=True)


def _key_id(public: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    return "sha256:" + hashlib.sha256(public.public_bytes(serialization.Encoding.DER, spki)).hexdigest()


def key_id_of(path: Path) -> str:
    """The id of a public key in PEM. Raises `UsageError`."""
    if not can_sign():
        raise UsageError(f"{path} cannot be read: {_EXTRA}")
    from cryptography.hazmat.primitives import serialization

    try:
        return _key_id(serialization.load_pem_public_key(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise UsageError(f"{path} has no public key in PEM; the server writes one as {PUBLIC_FILE}") from None


def signature_state(entry: Mapping[str, Any]) -> SignatureState:
    """Whether an entry's signature is over its hash and by the key that it has."""
    block = entry.get("signature")
    if block is None:
        return SignatureState.unsigned
    if not isinstance(block, Mapping) or not isinstance(entry.get("chain"), str):
        return SignatureState.wrong
    if not can_sign():
        return SignatureState.unchecked
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = serialization.load_pem_public_key(block["pubkey_pem"].encode())
        named = (block["backend"], block["alg"], block["signed"], block["key_id"])
        if not isinstance(public, Ed25519PublicKey) or named != (_BACKEND, "Ed25519", "chain", _key_id(public)):
            return SignatureState.wrong
        public.verify(base64.b64decode(block["sig"], validate=True), entry["chain"].encode())
    except (InvalidSignature, UnsupportedAlgorithm, KeyError, ValueError, TypeError, AttributeError):
        return SignatureState.wrong
    return SignatureState.valid

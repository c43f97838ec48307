"""The SHA-256 of cc/dispatch/sha256.cc."""

from __future__ import annotations

import hashlib
import random

import pytest

from tf_tvm_ops import _native

# The examples of FIPS 180-4, and the long message of NIST's validation suite.
VECTORS = (
    (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    (
        b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ),
    (
        b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
        b"hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1",
    ),
    (b"a" * 1_000_000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
)


@pytest.mark.parametrize(("message", "digest"), VECTORS, ids=lambda v: f"{len(v)}")
def test_known_digests(message: bytes, digest: str) -> None:
    assert _native.sha256(message) == digest


def test_every_length_around_a_block() -> None:
    data = random.Random(1).randbytes(260)
    for length in range(len(data)):
        message = data[:length]
        assert _native.sha256(message) == hashlib.sha256(message).hexdigest(), length

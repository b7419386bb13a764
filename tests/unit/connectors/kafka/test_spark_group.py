"""The name of the group by which Spark's executors read."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

from resurgence.connectors.kafka.connection import KafkaConnection, Mechanism, Protocol
from resurgence.connectors.kafka.reading import source

SECURE = KafkaConnection("b:9092", Protocol.SASL_SSL, Mechanism.PLAIN, "ann", "guessed")


def fingerprint(password: str = "guessed") -> str:
    connection = KafkaConnection("b:9092", Protocol.SASL_SSL, Mechanism.PLAIN, "ann", password)
    return source._fingerprint(connection.spark_options())


def test_only_consumers_with_the_same_settings_share_a_group() -> None:
    assert fingerprint() == fingerprint()
    assert fingerprint() != fingerprint("other")


def test_a_password_cannot_be_guessed_from_the_name_of_a_group() -> None:
    text = json.dumps(SECURE.spark_options(), sort_keys=True).encode()
    assert fingerprint() != hashlib.blake2b(text, digest_size=6).hexdigest()
    code = f"from {source.__name__} import _fingerprint; print(_fingerprint(dict(a='b')))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() not in ("", source._fingerprint({"a": "b"}))

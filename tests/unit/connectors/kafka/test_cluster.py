"""Requests to a cluster that fail before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from resurgence.connectors.kafka.connection import KafkaConnection, Protocol
from resurgence.connectors.kafka.reading.cluster import Cluster
from resurgence.connectors.kafka.reading.offsets import Partition
from resurgence.errors import UserError


def test_a_client_that_cannot_be_opened_to_read_a_record_is_the_users_error(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.pem")
    connection = KafkaConnection("127.0.0.1:1", protocol=Protocol.SSL, ca_file=absent)
    with pytest.raises(UserError, match="reading rides/0 failed"):
        Cluster(connection).value_at(Partition("rides", 0), 3, committed=True)

"""A commit whose answer is lost: the broker has committed, and the producer does not know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from resurgence.errors import ConnectionLost, SinkError
from tests.kafka.lane_target import Killed, LaneTarget, at_call
from tests.kafka.lossy_proxy import END_TXN, LossyProxy, lossy_proxy
from tests.servers.builds import NoServer
from tests.servers.kafka import KafkaBroker, running_broker


@pytest.fixture(scope="module")
def proxy() -> Iterator[LossyProxy]:
    with lossy_proxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def broker(proxy: LossyProxy) -> Iterator[KafkaBroker]:
    """A broker that its clients reach through the proxy."""
    address = f"PLAINTEXT://127.0.0.1:{proxy.port}"
    try:
        with running_broker(properties={"advertised.listeners": address}) as broker:
            proxy.target = int(broker.bootstrap.rpartition(":")[2])
            yield broker
    except NoServer as error:
        pytest.skip(f"no Kafka server: {error}")


@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize("killed", [False, True], ids=["lives", "killed"])
def test_a_part_whose_commit_had_no_answer_is_committed_once(
    broker: KafkaBroker,
    proxy: LossyProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: int,
    killed: bool,
) -> None:
    target = LaneTarget(broker, tmp_path)
    order = target.order(1, target.stage(1, (["a", "b"], ["c"])))
    before = proxy.lost

    def lose() -> None:
        proxy.lose(END_TXN)

    def kill() -> None:
        raise Killed

    with at_call(monkeypatch, "commit", part, lose, after=False):
        if killed:
            with at_call(monkeypatch, "commit", part, kill, after=True), pytest.raises(Killed):
                target.commit(order)
        else:
            try:
                target.commit(order)
            except (SinkError, ConnectionLost):
                target.commit(order)
    assert proxy.lost == before + 1
    target.commit(order)
    assert target.visible() == ["a", "b", "c"]

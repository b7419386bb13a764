"""The control channel accepts the expected worker, and no other connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from resurgence.control.workers.channel import ControlChannel, token_digest
from resurgence.ids import Epoch, Generation, WorkerId
from resurgence.worker.messages import (
    TO_WORKER,
    Dismissed,
    FromWorker,
    Heartbeat,
    StopAfterEpoch,
    WorkerConnected,
    encode,
)

ONE = WorkerId("worker-1")
HEARTBEAT = Heartbeat(
    worker=ONE, generation=Generation(1), epoch=Epoch(1), phase="idle", phase_seconds=0.0
)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def connected(token: str, *, worker: WorkerId = ONE, generation: int = 1) -> bytes:
    return encode(
        WorkerConnected(worker=worker, generation=Generation(generation), token=token, pid=5)
    )


class Endpoint:
    """An open channel, what it received, and connections to it."""

    def __init__(self) -> None:
        self.received: list[FromWorker] = []
        self.channel = ControlChannel()
        self.address = ("", 0)
        self._writers: list[asyncio.StreamWriter] = []

    def expect(self, worker: WorkerId, generation: int) -> str:
        return self.channel.expect(worker, Generation(generation), self.received.append)

    async def connect(self, *lines: bytes) -> Streams:
        reader, writer = await asyncio.open_connection(*self.address)
        self._writers.append(writer)
        writer.write(b"".join(lines))
        await writer.drain()
        return reader, writer

    async def close(self) -> None:
        await self.channel.close()
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()


def with_endpoint(scene: Callable[[Endpoint], Awaitable[None]]) -> None:
    async def play() -> None:
        endpoint = Endpoint()
        endpoint.address = await endpoint.channel.open()
        try:
            async with asyncio.timeout(5):
                await scene(endpoint)
        finally:
            await endpoint.close()

    asyncio.run(play())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_an_expected_worker_sends_messages_and_receives_orders() -> None:
    async def scene(endpoint: Endpoint) -> None:
        token = endpoint.expect(ONE, 1)
        assert not endpoint.channel.is_connected(ONE)
        reader, _ = await endpoint.connect(connected(token), encode(HEARTBEAT))
        await until(lambda: len(endpoint.received) == 2)
        assert endpoint.channel.is_connected(ONE)
        assert endpoint.received[1] == HEARTBEAT
        await endpoint.channel.send(ONE, StopAfterEpoch())
        assert TO_WORKER.validate_json(await reader.readline()) == StopAfterEpoch()

    with_endpoint(scene)


@pytest.mark.parametrize(
    "first_words",
    [
        lambda _token: connected("guessed"),
        lambda _token: connected("geheimnisvoll-ä"),
        lambda token: connected(token, generation=2),
        lambda token: connected(token, worker=WorkerId("worker-2")),
        lambda _token: encode(HEARTBEAT),
        lambda _token: b"GET / HTTP/1.1\r\n",
        lambda _token: b'{"type": "worker_connected"}\n',
    ],
    ids=[
        "wrong token",
        "token that is not ASCII",
        "wrong generation",
        "wrong name",
        "no introduction",
        "another protocol",
        "half a message",
    ],
)
def test_an_unauthenticated_connection_is_closed_and_its_messages_are_dropped(
    first_words: Callable[[str], bytes],
) -> None:
    async def scene(endpoint: Endpoint) -> None:
        token = endpoint.expect(ONE, 1)
        reader, _ = await endpoint.connect(first_words(token), encode(HEARTBEAT))
        assert await reader.read() in (b"", encode(Dismissed()))
        assert endpoint.received == []
        assert not endpoint.channel.is_connected(ONE)

    with_endpoint(scene)


def test_a_worker_that_lost_its_connection_reconnects_with_its_token() -> None:
    async def scene(endpoint: Endpoint) -> None:
        token = endpoint.expect(ONE, 1)
        first, _ = await endpoint.connect(connected(token))
        await until(lambda: endpoint.channel.is_connected(ONE))
        second, _ = await endpoint.connect(connected(token), encode(HEARTBEAT))
        assert await first.read() == b""
        await until(lambda: len(endpoint.received) == 3)
        await endpoint.channel.send(ONE, StopAfterEpoch())
        assert TO_WORKER.validate_json(await second.readline()) == StopAfterEpoch()

    with_endpoint(scene)


def test_a_worker_that_is_no_longer_expected_is_dismissed() -> None:
    async def scene(endpoint: Endpoint) -> None:
        token = endpoint.expect(ONE, 1)
        endpoint.channel.disconnect(ONE)
        reader, _ = await endpoint.connect(connected(token))
        assert TO_WORKER.validate_json(await reader.readline()) == Dismissed()
        assert endpoint.received == []

    with_endpoint(scene)


def test_a_worker_of_another_generation_needs_the_token_of_that() -> None:
    async def scene(endpoint: Endpoint) -> None:
        old = endpoint.expect(ONE, 1)
        await endpoint.connect(connected(old))
        await until(lambda: endpoint.channel.is_connected(ONE))
        new = endpoint.expect(ONE, 2)
        assert endpoint.channel.is_connected(ONE)
        for words in (connected(old), connected(old, generation=2), connected(new)):
            reader, _ = await endpoint.connect(words)
            assert TO_WORKER.validate_json(await reader.readline()) == Dismissed()
        await endpoint.connect(connected(new, generation=2))
        await until(lambda: len(endpoint.received) == 2)

    with_endpoint(scene)


def test_another_controller_accepts_a_worker_by_the_digest_of_its_token() -> None:
    async def scene(endpoint: Endpoint) -> None:
        token = "of another controller"
        digest = token_digest(token)
        endpoint.channel.expect_again(ONE, Generation(1), digest, endpoint.received.append)
        reader, _ = await endpoint.connect(connected(digest))
        assert TO_WORKER.validate_json(await reader.readline()) == Dismissed()
        await endpoint.connect(connected(token))
        await until(lambda: endpoint.channel.is_connected(ONE))

    with_endpoint(scene)


def test_a_port_in_use_is_replaced_by_another_one() -> None:
    async def scene(endpoint: Endpoint) -> None:
        other = ControlChannel()
        address = await other.open(endpoint.address[1])
        assert address[1] != endpoint.address[1]
        await other.close()

    with_endpoint(scene)


def test_drained_waits_for_the_last_messages_of_a_worker() -> None:
    async def scene(endpoint: Endpoint) -> None:
        token = endpoint.expect(ONE, 1)
        _, writer = await endpoint.connect(connected(token))
        await until(lambda: endpoint.channel.is_connected(ONE))
        waiting = asyncio.create_task(endpoint.channel.drained(ONE))
        writer.write(encode(HEARTBEAT))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        writer.write_eof()
        await waiting
        assert endpoint.received[-1] == HEARTBEAT

    with_endpoint(scene)


def test_drained_does_not_wait_for_a_worker_that_never_connected() -> None:
    async def scene(endpoint: Endpoint) -> None:
        endpoint.expect(ONE, 1)
        await endpoint.channel.drained(ONE)
        await endpoint.channel.drained(WorkerId("nobody"))

    with_endpoint(scene)


def test_an_order_to_a_disconnected_worker_is_not_an_error() -> None:
    async def scene(endpoint: Endpoint) -> None:
        token = endpoint.expect(ONE, 1)
        _, writer = await endpoint.connect(connected(token))
        await until(lambda: endpoint.channel.is_connected(ONE))
        writer.close()
        await endpoint.channel.drained(ONE)
        await endpoint.channel.send(ONE, StopAfterEpoch())

    with_endpoint(scene)

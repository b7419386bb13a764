"""Tells a receiver by HTTP when a job fails and when it has come back.

What to send for an event, and what to make of an answer, are pure functions. `Webhooks` is the shell
around them: a bounded queue and one task that posts from it, one notice at a time. So the order is
kept, and a receiver that is away costs its own notices and nothing else: no job ever waits for it.

Notices are not stored. What is still queued when the controller dies is lost; events and incidents
are in the metadata database.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto

import httpx

from resurgence.clock import Clock, SystemClock
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.control.telemetry.events import Event
from resurgence.errors import ConfigError
from resurgence.ids import JobName

SIGNATURE_HEADER = "X-Resurgence-Signature"
DELIVERY_HEADER = "X-Resurgence-Delivery"

_DICE = random.SystemRandom()
"""Not the program's own, whose throws may have to be repeatable."""

log = logging.getLogger("resurgence.webhooks")


class NoticeKind(StrEnum):
    """What a notice is about."""

    FAILURE = "failure"
    """Something failed, and the job is being recovered, or is about to be given up."""
    RECOVERED = "recovered"
    FAILED = "failed"
    """The job has been given up."""


@dataclass(frozen=True)
class Notice:
    """One event as it is posted, the same at every try."""

    id: str
    job: JobName
    kind: NoticeKind
    body: bytes


@dataclass(frozen=True)
class DeliveryPolicy:
    """How hard to try."""

    timeout: timedelta = timedelta(seconds=5)
    """For one try, from the connection to the answer's status."""
    tries: int = 8
    initial_backoff: timedelta = timedelta(seconds=1)
    maximal_backoff: timedelta = timedelta(seconds=60)
    """Before jitter."""
    capacity: int = 1000
    """Notices that wait; one more drops the oldest."""


class Reception(Enum):
    """What an answer means."""

    DELIVERED = auto()
    TRY_AGAIN = auto()
    REFUSED = auto()
    """The same again would be refused again."""


def judge_event(event: Event, *, is_down: bool) -> tuple[NoticeKind | None, bool]:
    """What to send for an event, and whether the job is down after it.

    A job is down from the failure that opens an incident until the incident is over or the job has
    ended; further failures on the way send nothing. A failure while stopping opens no incident, and
    is told by having no generation. Nor is a stop that ends an incident news to whoever asked for it.
    """
    match event["event"]:
        case "failure" if "generation" in event:
            return (None if is_down else NoticeKind.FAILURE), True
        case "incident":
            return (NoticeKind.RECOVERED if event["resumed_at"] is not None else None), False
        case "state" if str(event["to"]) in TERMINAL:
            return (NoticeKind.FAILED if event["to"] == StateName.FAILED else None), False
    return None, is_down


def make_notice(job: JobName, kind: NoticeKind, event: Event) -> Notice:
    """The event as a notice with a fresh id."""
    notice_id = uuid.uuid4().hex
    facts = {name: value for name, value in event.items() if name not in ("event", "at")}
    body = {"id": notice_id, "at": event["at"], "job": job, "kind": kind, "facts": facts}
    return Notice(notice_id, job, kind, json.dumps(body).encode())


def signature(secret: str, body: bytes, now: datetime) -> str:
    """The value of the signature's header. The instant is signed, too, so that a receiver can
    refuse what someone recorded and posts again.
    """
    instant = int(now.timestamp())
    signed = hmac.new(secret.encode(), f"{instant}.".encode() + body, hashlib.sha256)
    return f"t={instant},v1={signed.hexdigest()}"


def judge_answer(status: int | None) -> Reception:
    """What an HTTP status means; None: there was none, for want of a connection or of time.

    Redirects are refusals: whoever may answer for the receiver must not send notices elsewhere.
    """
    if status is None or status >= 500 or status in (408, 429):
        return Reception.TRY_AGAIN
    return Reception.DELIVERED if 200 <= status < 300 else Reception.REFUSED


def wait_after(tries: int, policy: DeliveryPolicy, jitter: float) -> timedelta | None:
    """How long to wait after so many tries; None: give up. `jitter` is a number from 0 to 1."""
    if tries >= policy.tries:
        return None
    wait = min(policy.initial_backoff * 2.0 ** (tries - 1), policy.maximal_backoff)
    return wait * (0.75 + jitter / 2)


class Webhooks:
    """Posts notices of all jobs to one receiver."""

    def __init__(
        self,
        url: str,
        secret: str | None,
        *,
        policy: DeliveryPolicy | None = None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = _DICE.random,
    ) -> None:
        """`secret` None: notices are not signed. A ConfigError if one of the two cannot be used."""
        self._url, self._receiver = _checked(url)
        if secret is not None and not secret:
            raise ConfigError("the webhook secret is empty", hint="set one, or leave it out")
        self._secret = secret
        self._policy = policy or DeliveryPolicy()
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._client = _open_client(self._policy.timeout)
        self._down: set[JobName] = set()
        self._queue: asyncio.Queue[Notice] = asyncio.Queue(self._policy.capacity)
        self._delivery: asyncio.Task[None] | None = None
        self.delivered = 0
        self.dropped = 0
        """Notices that did not arrive, for whatever reason."""

    def note(self, job: JobName, event: Event) -> None:
        """A job's event, in order. Answers at once; to be called on the event loop."""
        kind, is_down = judge_event(event, is_down=job in self._down)
        if is_down:
            self._down.add(job)
        else:
            self._down.discard(job)
        if kind is None:
            return
        if self._queue.full():
            self._drop_oldest(f"{self._policy.capacity} newer ones wait")
        self._queue.put_nowait(make_notice(job, kind, event))

    def start(self) -> None:
        """Deliver in the background until closed."""
        self._delivery = asyncio.create_task(self._deliver_all())

    async def close(self, deadline: timedelta) -> None:
        """Deliver what waits, for no longer than that, and drop the rest."""
        if self._delivery is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline.total_seconds()):
                    await self._queue.join()
            self._delivery.cancel()
            await asyncio.wait([self._delivery])
        while not self._queue.empty():
            self._drop_oldest("the controller ends")
        await self._client.aclose()

    async def _deliver_all(self) -> None:
        while True:
            notice = await self._queue.get()
            try:
                await self._deliver(notice)
            except asyncio.CancelledError:
                self._drop(notice, "the controller ends")
                raise
            finally:
                self._queue.task_done()

    async def _deliver(self, notice: Notice) -> None:
        tries = 0
        while True:
            status, said = await self._post(notice)
            tries += 1
            reception = judge_answer(status)
            if reception is Reception.DELIVERED:
                self.delivered += 1
                return
            if reception is Reception.REFUSED:
                self._drop(notice, f"{self._receiver} refused it: {said}")
                return
            wait = wait_after(tries, self._policy, self._jitter())
            if wait is None:
                self._drop(notice, f"{self._receiver} did not take it in {tries} tries: {said}")
                return
            await asyncio.sleep(wait.total_seconds())

    async def _post(self, notice: Notice) -> tuple[int | None, str]:
        """One try: the status of the answer, if one came, and a word for people. The answer's body
        is not read.
        """
        headers = {"Content-Type": "application/json", DELIVERY_HEADER: notice.id}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = signature(self._secret, notice.body, self._clock.now())
        try:
            async with (
                asyncio.timeout(self._policy.timeout.total_seconds()),
                self._client.stream(
                    "POST", self._url, content=notice.body, headers=headers
                ) as response,
            ):
                return response.status_code, f"status {response.status_code}"
        except (TimeoutError, httpx.TimeoutException):
            return None, f"no answer within {self._policy.timeout.total_seconds():g} s"
        except Exception as error:
            # Not all that the library throws is an error of its own, and no notice may end the rest.
            return None, f"{type(error).__name__}: {error}"
        finally:
            self._client.cookies.clear()

    def _drop_oldest(self, why: str) -> None:
        self._drop(self._queue.get_nowait(), why)
        self._queue.task_done()

    def _drop(self, notice: Notice, why: str) -> None:
        self.dropped += 1
        log.warning(
            "webhook %s (%s of job %s) is dropped: %s", notice.id, notice.kind, notice.job, why
        )


def _checked(url: str) -> tuple[httpx.URL, str]:
    """The URL, and as much of it as may be shown: path, query and user may hold a token."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    port = 80 if parsed.port is None else parsed.port
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < port < 2**16:
        raise ConfigError(
            "the webhook URL cannot be used", hint="write it as https://host/path, or http://"
        )
    return parsed, f"{parsed.scheme}://{parsed.netloc.decode()}"


def _open_client(timeout: timedelta) -> httpx.AsyncClient:
    # httpx logs every request with its URL, and that may hold a token.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        # Notices are rare: no connection is kept between them.
        return httpx.AsyncClient(
            timeout=timeout.total_seconds(),
            follow_redirects=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"the environment does not allow for webhooks: {error}",
            hint="look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE",
        ) from error

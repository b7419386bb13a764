"""Notifies a receiver by HTTP when a job fails and when it has recovered.

What to send for an event, and how to treat a response, are pure functions. `Webhooks` is the shell
around them: a bounded queue and one task that posts from it, one notice at a time. This preserves
the order, and an unavailable receiver loses only its own notices: no job ever waits for it.

Notices are not stored. Those in the queue are lost when the controller dies; events and incidents
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

_JITTER = random.SystemRandom()
"""Separate from the global generator, which may be seeded for reproducibility."""

log = logging.getLogger("resurgence.webhooks")


class NoticeKind(StrEnum):
    """The subject of a notice."""

    FAILURE = "failure"
    """Something failed; the job recovers, or is about to fail for good."""
    RECOVERED = "recovered"
    FAILED = "failed"
    """The job has failed for good."""


@dataclass(frozen=True)
class Notice:
    """One event as it is posted, identical on every attempt."""

    id: str
    job: JobName
    kind: NoticeKind
    body: bytes


@dataclass(frozen=True)
class DeliveryPolicy:
    """Timeouts, retries and backoff of deliveries."""

    timeout: timedelta = timedelta(seconds=5)
    """For one attempt, from the connection to the status of the response."""
    tries: int = 8
    initial_backoff: timedelta = timedelta(seconds=1)
    maximal_backoff: timedelta = timedelta(seconds=60)
    """Without jitter."""
    capacity: int = 1000
    """The size of the queue; one more notice drops the oldest."""


class Reception(Enum):
    """The outcome of an attempt."""

    DELIVERED = auto()
    TRY_AGAIN = auto()
    REFUSED = auto()
    """A retry would be refused again."""


def judge_event(event: Event, *, is_down: bool) -> tuple[NoticeKind | None, bool]:
    """Return what to send for an event, if anything, and whether the job is down after it.

    A job is down from the failure that opens an incident until the incident is closed or the job
    has ended; further failures in between send nothing. A failure while stopping opens no incident;
    it is recognised by its missing generation. A requested stop that closes an incident sends
    nothing.
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
    """Return the event as a notice with a new id."""
    notice_id = uuid.uuid4().hex
    facts = {name: value for name, value in event.items() if name not in ("event", "at")}
    body = {"id": notice_id, "at": event["at"], "job": job, "kind": kind, "facts": facts}
    return Notice(notice_id, job, kind, json.dumps(body).encode())


def signature(secret: str, body: bytes, now: datetime) -> str:
    """Return the value of the signature header. The instant is signed, too, so that a receiver can
    reject a replayed request.
    """
    instant = int(now.timestamp())
    signed = hmac.new(secret.encode(), f"{instant}.".encode() + body, hashlib.sha256)
    return f"t={instant},v1={signed.hexdigest()}"


def judge_answer(status: int | None) -> Reception:
    """Return the outcome for an HTTP status; None: no response, for lack of a connection or a
    timeout.

    A redirect counts as a refusal: a responder must not be able to divert notices elsewhere.
    """
    if status is None or status >= 500 or status in (408, 429):
        return Reception.TRY_AGAIN
    return Reception.DELIVERED if 200 <= status < 300 else Reception.REFUSED


def wait_after(tries: int, policy: DeliveryPolicy, jitter: float) -> timedelta | None:
    """Return the backoff after that many attempts; None: give up. `jitter` is from 0 to 1."""
    if tries >= policy.tries:
        return None
    wait = min(policy.initial_backoff * 2.0 ** (tries - 1), policy.maximal_backoff)
    return wait * (0.75 + jitter / 2)


class Webhooks:
    """Posts the notices of all jobs to one receiver."""

    def __init__(
        self,
        url: str,
        secret: str | None,
        *,
        policy: DeliveryPolicy | None = None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = _JITTER.random,
    ) -> None:
        """`secret` None: notices are not signed. Raise ConfigError if one of the two is invalid."""
        self._url, self._receiver = _checked(url)
        if secret is not None and not secret:
            raise ConfigError("the webhook secret is empty", hint="Set a secret, or omit it.")
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
        """Notices that were not delivered, for any reason."""

    def note(self, job: JobName, event: Event) -> None:
        """Queue the notice for a job's event, if it has one. Never blocks; call it on the event
        loop.
        """
        kind, is_down = judge_event(event, is_down=job in self._down)
        if is_down:
            self._down.add(job)
        else:
            self._down.discard(job)
        if kind is None:
            return
        if self._queue.full():
            self._drop_oldest(f"the queue is full, with {self._policy.capacity} newer notices")
        self._queue.put_nowait(make_notice(job, kind, event))

    def start(self) -> None:
        """Deliver in the background until closed."""
        self._delivery = asyncio.create_task(self._deliver_all())

    async def close(self, deadline: timedelta) -> None:
        """Deliver the queued notices until the deadline, and drop the rest."""
        if self._delivery is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline.total_seconds()):
                    await self._queue.join()
            self._delivery.cancel()
            await asyncio.wait([self._delivery])
        while not self._queue.empty():
            self._drop_oldest("the controller is shutting down")
        await self._client.aclose()

    async def _deliver_all(self) -> None:
        while True:
            notice = await self._queue.get()
            try:
                await self._deliver(notice)
            except asyncio.CancelledError:
                self._drop(notice, "the controller is shutting down")
                raise
            finally:
                self._queue.task_done()

    async def _deliver(self, notice: Notice) -> None:
        tries = 0
        while True:
            status, detail = await self._post(notice)
            tries += 1
            reception = judge_answer(status)
            if reception is Reception.DELIVERED:
                self.delivered += 1
                return
            if reception is Reception.REFUSED:
                self._drop(notice, f"{self._receiver} refused it: {detail}")
                return
            wait = wait_after(tries, self._policy, self._jitter())
            if wait is None:
                self._drop(
                    notice, f"{self._receiver} did not accept it in {tries} attempts: {detail}"
                )
                return
            await asyncio.sleep(wait.total_seconds())

    async def _post(self, notice: Notice) -> tuple[int | None, str]:
        """Make one attempt. Return the status of the response, if there is one, and a description
        for the log. The body of the response is not read.
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
            return None, f"no response within {self._policy.timeout.total_seconds():g} s"
        except Exception as error:
            # httpx also raises errors of other libraries, and no notice may stop the delivery task.
            return None, f"{type(error).__name__}: {error}"
        finally:
            self._client.cookies.clear()

    def _drop_oldest(self, why: str) -> None:
        self._drop(self._queue.get_nowait(), why)
        self._queue.task_done()

    def _drop(self, notice: Notice, why: str) -> None:
        self.dropped += 1
        log.warning(
            "dropped webhook %s (%s of job %s): %s", notice.id, notice.kind, notice.job, why
        )


def _checked(url: str) -> tuple[httpx.URL, str]:
    """Return the URL, and the part of it to log: path, query and user may contain a token."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    port = 80 if parsed.port is None else parsed.port
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < port < 2**16:
        raise ConfigError(
            "the webhook URL is not a valid http or https URL",
            hint="Write it as https://HOST/PATH.",
        )
    return parsed, f"{parsed.scheme}://{parsed.netloc.decode()}"


def _open_client(timeout: timedelta) -> httpx.AsyncClient:
    # httpx logs every request with its URL, which may contain a token.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        # Notices are rare: no connection stays open between them.
        return httpx.AsyncClient(
            timeout=timeout.total_seconds(),
            follow_redirects=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"cannot create the HTTP client for webhooks: {error}",
            hint="Check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE in the environment.",
        ) from error

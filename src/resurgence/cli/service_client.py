"""The client of a service's API: the commands about jobs speak through it.

An answer becomes a value, an error answer becomes one of our errors: what the user can mend (exit
2), or a failure of the service (exit 1). Every request has a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from resurgence.api.models import (
    ErrorAnswer,
    Incidents,
    Job,
    JobDetail,
    JobEvent,
    JobEvents,
    JobRequest,
    Jobs,
    PipelineRequest,
    Request,
    RescaleRequest,
    RestartRequest,
    Rollback,
    RollbackRequest,
    StopRequest,
    WorkerDetail,
    Workers,
)
from resurgence.control.jobs.job_record import StopMode
from resurgence.errors import (
    ConfigError,
    ErrorDomain,
    ResurgenceError,
    RetryHint,
    SqlError,
    UserError,
)

DEFAULT_SERVER = "http://127.0.0.1:7070"
_TRIES = 3
_LONGEST_PAUSE = 5.0
_SLOWEST_ANSWER = 30.0

A = TypeVar("A", bound=BaseModel)
Facts = dict[str, object]


class NoService(ConfigError):
    """Nothing listens there."""

    code = "service.absent"


class ServiceFailed(ResurgenceError):
    """The service, or the way to it, failed."""

    code = "service"
    domain = ErrorDomain.EXTERNAL
    retry_hint = RetryHint.WITH_BACKOFF


class ServiceRefused(UserError):
    """The service says that the request is wrong."""

    code = "service.refused"

    def __init__(self, message: str, *, answered: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.answered = answered
        """The code of the service's answer."""


@dataclass(frozen=True)
class LogAnswer:
    """A part of a log, whose it is, where it goes on, and who was started last."""

    text: str
    worker: str
    offset: int
    newest: str


class ServiceClient:
    """Asks one service. Nothing is asked before the first method is called."""

    def __init__(self, server: str, key: str | None = None) -> None:
        self._server = server
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            url = httpx.URL(server)
            if url.scheme not in ("http", "https") or not url.host:
                raise ConfigError(
                    f"'{server}' is not the address of a service",
                    hint=f"Write --server as {DEFAULT_SERVER}.",
                )
            # A proxy cannot reach what listens on this machine only.
            is_here = url.host in ("localhost", "127.0.0.1", "::1")
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=_SLOWEST_ANSWER, trust_env=not is_here
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise ConfigError(f"the address or the key cannot be used: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    # ---------------------------------------------------------------- changes

    def create(self, request: JobRequest) -> JobDetail:
        return self._read(JobDetail, "POST", "/v1/jobs", body=request)

    def edit(self, name: str, request: PipelineRequest) -> JobDetail:
        return self._read(JobDetail, "PUT", f"/v1/jobs/{name}/pipeline", body=request)

    def stop(self, name: str, mode: StopMode) -> JobDetail:
        return self._read(JobDetail, "POST", f"/v1/jobs/{name}/stop", body=StopRequest(mode=mode))

    def start(self, name: str) -> JobDetail:
        return self._read(JobDetail, "POST", f"/v1/jobs/{name}/start")

    def restart(self, name: str, request: RestartRequest) -> JobDetail:
        return self._read(JobDetail, "POST", f"/v1/jobs/{name}/restart", body=request)

    def rescale(self, name: str, parallelism: int) -> JobDetail:
        body = RescaleRequest(parallelism=parallelism)
        return self._read(JobDetail, "POST", f"/v1/jobs/{name}/rescale", body=body)

    def delete(self, name: str, *, with_state: bool) -> JobDetail:
        return self._read(
            JobDetail, "DELETE", f"/v1/jobs/{name}", {"with_state": str(with_state).lower()}
        )

    def rollback(self, name: str, request: RollbackRequest) -> JobDetail:
        return self._read(JobDetail, "POST", f"/v1/jobs/{name}/rollback", body=request)

    # ---------------------------------------------------------------- views

    def jobs(self) -> list[Job]:
        return self._read(Jobs, "GET", "/v1/jobs").jobs

    def job(self, name: str) -> JobDetail:
        return self._read(JobDetail, "GET", f"/v1/jobs/{name}")

    def events(self, name: str, after: int, *, wait: int = 0, limit: int = 1000) -> list[JobEvent]:
        """Events after one; waits so many seconds for the next if there is none."""
        asked = {"after": after, "limit": limit, "wait": wait}
        return self._read(JobEvents, "GET", f"/v1/jobs/{name}/events", asked, wait=wait).events

    def incidents(self, name: str | None) -> list[Facts]:
        path = "/v1/incidents" if name is None else f"/v1/jobs/{name}/incidents"
        return [dict(each) for each in self._read(Incidents, "GET", path).incidents]

    def rollback_preview(self, name: str, to_epoch: int) -> Rollback:
        """What a rollback would do."""
        return self._read(Rollback, "GET", f"/v1/jobs/{name}/rollback", {"to_epoch": to_epoch})

    def workers(self) -> list[WorkerDetail]:
        return self._read(Workers, "GET", "/v1/workers").workers

    def last_log_lines(self, name: str, lines: int) -> LogAnswer:
        """The end of the newest worker's log."""
        return self._log(name, {"lines": lines})

    def log_after(self, name: str, worker: str, offset: int) -> LogAnswer:
        """What was added to a worker's log; of the newest worker if none is named."""
        named = {"worker": worker} if worker else {}
        return self._log(name, {"after": offset, **named})

    # ---------------------------------------------------------------- asking

    def _log(self, name: str, asked: Mapping[str, str | int]) -> LogAnswer:
        answer = self._ask("GET", f"/v1/jobs/{name}/logs", asked)
        offset = answer.headers.get("X-Log-Offset", "0")
        return LogAnswer(
            text=answer.text,
            worker=answer.headers.get("X-Log-Worker", ""),
            offset=int(offset) if offset.isdigit() else 0,
            newest=answer.headers.get("X-Log-Newest", ""),
        )

    def _read(
        self,
        model: type[A],
        method: str,
        path: str,
        asked: Mapping[str, str | int] | None = None,
        *,
        body: Request | None = None,
        wait: int = 0,
    ) -> A:
        answer = self._ask(method, path, asked, body=body, wait=wait)
        try:
            return model.model_validate_json(answer.content)
        except ValidationError as error:
            raise self._not_understood() from error

    def _ask(
        self,
        method: str,
        path: str,
        asked: Mapping[str, str | int] | None = None,
        *,
        body: Request | None = None,
        wait: int = 0,
    ) -> httpx.Response:
        """Ask, and ask again a few times if the service has too much to do."""
        tries_left = _TRIES
        while True:
            answer = self._send(method, path, asked, body, wait)
            if answer.is_success:
                return answer
            tries_left -= 1
            pause = answer.headers.get("Retry-After", "")
            if answer.status_code != 429 or not tries_left or not pause.isdigit():
                raise self._error_in(answer)
            time.sleep(min(float(pause), _LONGEST_PAUSE))

    def _send(
        self,
        method: str,
        path: str,
        asked: Mapping[str, str | int] | None,
        body: Request | None,
        wait: int,
    ) -> httpx.Response:
        try:
            return self._http.request(
                method,
                path,
                params=dict(asked or {}),
                json=body.model_dump(mode="json") if body is not None else None,
                timeout=_SLOWEST_ANSWER + wait,
            )
        except httpx.ConnectError as error:
            raise NoService(
                f"no service answers at {self._server}",
                hint="Start one with `resurgence serve`, or name its address with --server.",
            ) from error
        except httpx.TimeoutException as error:
            raise ServiceFailed(f"the service at {self._server} does not answer in time") from error
        except httpx.HTTPError as error:
            raise ServiceFailed(
                f"the connection to {self._server} failed: {error}",
                hint="Try again if the service was restarted.",
            ) from error

    def _error_in(self, answer: httpx.Response) -> ResurgenceError:
        try:
            error = ErrorAnswer.model_validate_json(answer.content).error
        except ValidationError:
            return self._not_understood()
        if answer.status_code >= 500 or answer.status_code in (408, 429):
            return ServiceFailed(error.message, hint=error.hint)
        if error.line is not None and error.column is not None:
            return SqlError(error.message, line=error.line, column=error.column, hint=error.hint)
        return ServiceRefused(error.message, answered=error.code, hint=error.hint)

    def _not_understood(self) -> ServiceFailed:
        return ServiceFailed(
            f"the server at {self._server} is not a service of this release",
            hint="Name the address of the service with --server.",
        )

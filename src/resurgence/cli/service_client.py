"""The client of a service's API, for the commands about jobs.

A response becomes a value; an error response becomes one of our errors: one that the user can fix
(exit 2), or a failure of the service (exit 1). Every request has a deadline.
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
    DeadLetters,
    ErrorAnswer,
    Incidents,
    Job,
    JobDetail,
    JobEvent,
    JobEvents,
    JobRequest,
    Jobs,
    LetterQuery,
    LetterRows,
    PipelineRequest,
    Replayed,
    ReplayOrder,
    Request,
    RescaleRequest,
    RestartRequest,
    Rollback,
    RollbackRequest,
    StopRequest,
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
_MAX_PAUSE_SECONDS = 5.0
_RESPONSE_SECONDS = 30.0

A = TypeVar("A", bound=BaseModel)
Facts = dict[str, object]


class NoService(ConfigError):
    """No service listens at the address."""

    code = "service.absent"


class ServiceFailed(ResurgenceError):
    """The service, or the connection to it, failed."""

    code = "service"
    domain = ErrorDomain.EXTERNAL
    retry_hint = RetryHint.WITH_BACKOFF


class ServiceRefused(UserError):
    """The service refused the request."""

    code = "service.refused"

    def __init__(self, message: str, *, response_code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.response_code = response_code
        """The `code` of the error response."""


@dataclass(frozen=True)
class LogAnswer:
    """A part of a log, its worker, the offset after it, and the worker started last."""

    text: str
    worker: str
    offset: int
    newest: str


class ServiceClient:
    """A client of one service. It connects when the first method is called."""

    def __init__(self, server: str, key: str | None = None) -> None:
        self._server = server
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            url = httpx.URL(server)
            if url.scheme not in ("http", "https") or not url.host:
                raise ConfigError(
                    f"invalid service address '{server}'",
                    hint=f"Write --server as {DEFAULT_SERVER}.",
                )
            # A proxy cannot reach a service that listens on this machine only.
            is_local = url.host in ("localhost", "127.0.0.1", "::1")
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=_RESPONSE_SECONDS, trust_env=not is_local
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise ConfigError(f"invalid service address or API key: {error}") from error

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

    def replay(self, name: str, order: ReplayOrder) -> Replayed:
        return self._read(Replayed, "POST", f"/v1/jobs/{name}/dead-letters/replay", body=order)

    # ---------------------------------------------------------------- views

    def jobs(self) -> list[Job]:
        return self._read(Jobs, "GET", "/v1/jobs").jobs

    def job(self, name: str) -> JobDetail:
        return self._read(JobDetail, "GET", f"/v1/jobs/{name}")

    def events(self, name: str, after: int, *, wait: int = 0, limit: int = 1000) -> list[JobEvent]:
        """Return the events after one; wait up to `wait` seconds if there is none."""
        parameters = {"after": after, "limit": limit, "wait": wait}
        return self._read(JobEvents, "GET", f"/v1/jobs/{name}/events", parameters, wait=wait).events

    def incidents(self, name: str | None) -> list[Facts]:
        path = "/v1/incidents" if name is None else f"/v1/jobs/{name}/incidents"
        return [dict(each) for each in self._read(Incidents, "GET", path).incidents]

    def rollback_preview(self, name: str, to_epoch: int) -> Rollback:
        """Return the effects of a rollback."""
        return self._read(Rollback, "GET", f"/v1/jobs/{name}/rollback", {"to_epoch": to_epoch})

    def dead_letters(
        self, name: str, epoch: int | None, operator: str | None, limit: int
    ) -> DeadLetters:
        conditions = {"epoch": epoch, "operator": operator, "limit": limit}
        given = {key: value for key, value in conditions.items() if value is not None}
        return self._read(DeadLetters, "GET", f"/v1/jobs/{name}/dead-letters", given)

    def dead_letter(self, name: str, letter: str) -> DeadLetters:
        """Return the dead letter with an id."""
        return self._read(DeadLetters, "GET", f"/v1/jobs/{name}/dead-letters", {"id": letter})

    def query_dead_letters(self, name: str, query: LetterQuery) -> LetterRows:
        path = f"/v1/jobs/{name}/dead-letters/query"
        return self._read(LetterRows, "POST", path, body=query)

    def workers(self) -> Workers:
        return self._read(Workers, "GET", "/v1/workers")

    def last_log_lines(self, name: str, lines: int) -> LogAnswer:
        """Return the end of the newest worker's log."""
        return self._log(name, {"lines": lines})

    def log_after(self, name: str, worker: str, offset: int) -> LogAnswer:
        """Return the log text of a worker after an offset; the newest worker if none is named."""
        named = {"worker": worker} if worker else {}
        return self._log(name, {"after": offset, **named})

    # ---------------------------------------------------------------- requests

    def _log(self, name: str, parameters: Mapping[str, str | int]) -> LogAnswer:
        response = self._request("GET", f"/v1/jobs/{name}/logs", parameters)
        offset = response.headers.get("X-Log-Offset", "0")
        return LogAnswer(
            text=response.text,
            worker=response.headers.get("X-Log-Worker", ""),
            offset=int(offset) if offset.isdigit() else 0,
            newest=response.headers.get("X-Log-Newest", ""),
        )

    def _read(
        self,
        model: type[A],
        method: str,
        path: str,
        parameters: Mapping[str, str | int] | None = None,
        *,
        body: Request | None = None,
        wait: int = 0,
    ) -> A:
        response = self._request(method, path, parameters, body=body, wait=wait)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            raise self._unexpected_response() from error

    def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str | int] | None = None,
        *,
        body: Request | None = None,
        wait: int = 0,
    ) -> httpx.Response:
        """Send a request; retry a few times while the service limits the rate."""
        tries_left = _TRIES
        while True:
            response = self._send(method, path, parameters, body, wait)
            if response.is_success:
                return response
            tries_left -= 1
            pause = response.headers.get("Retry-After", "")
            if response.status_code != 429 or not tries_left or not pause.isdigit():
                raise self._error_in(response)
            time.sleep(min(float(pause), _MAX_PAUSE_SECONDS))

    def _send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str | int] | None,
        body: Request | None,
        wait: int,
    ) -> httpx.Response:
        try:
            return self._http.request(
                method,
                path,
                params=dict(parameters or {}),
                json=body.model_dump(mode="json") if body is not None else None,
                timeout=_RESPONSE_SECONDS + wait,
            )
        except httpx.ConnectError as error:
            raise NoService(
                f"cannot connect to a service at {self._server}",
                hint="Start one with `resurgence serve`, or name its address with --server.",
            ) from error
        except httpx.TimeoutException as error:
            raise ServiceFailed(f"request to the service at {self._server} timed out") from error
        except httpx.HTTPError as error:
            raise ServiceFailed(
                f"connection to {self._server} failed: {error}",
                hint="Retry if the service was restarted.",
            ) from error

    def _error_in(self, response: httpx.Response) -> ResurgenceError:
        try:
            error = ErrorAnswer.model_validate_json(response.content).error
        except ValidationError:
            return self._unexpected_response()
        if response.status_code >= 500 or response.status_code in (408, 429):
            return ServiceFailed(error.message, hint=error.hint)
        if error.line is not None and error.column is not None:
            return SqlError(error.message, line=error.line, column=error.column, hint=error.hint)
        return ServiceRefused(error.message, response_code=error.code, hint=error.hint)

    def _unexpected_response(self) -> ServiceFailed:
        return ServiceFailed(
            f"the server at {self._server} is not a service of this release",
            hint="Name the address of the service with --server.",
        )

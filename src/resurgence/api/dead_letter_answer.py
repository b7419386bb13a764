"""Conversion of dead letters to response models."""

from __future__ import annotations

import base64

from resurgence.api.json_values import json_value
from resurgence.api.models import (
    CorrectedLetter,
    DeadLetter,
    DeadLetters,
    LetterHeader,
    LetterRows,
    Replayed,
)
from resurgence.errors import UserError
from resurgence.state.inspection import state_queries
from resurgence.state.inspection.dead_letters import Correction, Letters, ReplayOutcome

_FINISHED = "the job has finished: start it again to read them"


def letters_answer(letters: Letters) -> DeadLetters:
    return DeadLetters(
        dead_letters=[_letter(each) for each in letters.rows.to_pylist()],
        omitted=letters.omitted,
    )


def _letter(row: dict[str, object]) -> DeadLetter:
    raw = row["raw"]
    text = _text(raw)
    encoded = None
    if isinstance(raw, bytes) and text is not None and text.encode() != raw:
        encoded = base64.b64encode(raw).decode()
    shown = ("id", "operator", "epoch", "position", "error", "source", "at", "replayed")
    values = {name: row[name] for name in (*shown, "record_timestamp")}
    texts = {"raw": text, "raw_base64": encoded, "key": _text(row["key"])}
    return DeadLetter.model_validate({**values, **texts, "headers": _headers(row["headers"])})


def _text(value: object) -> str | None:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else None


def _headers(value: object) -> list[LetterHeader] | None:
    if not isinstance(value, list):
        return None
    return [LetterHeader(key=each["key"], value=_text(each["value"])) for each in value]


def rows_answer(found: state_queries.LetterRows) -> LetterRows:
    """Return the rows of a query as JSON."""
    rows = [[json_value(each) for each in row] for row in found.rows]
    return LetterRows(columns=found.columns, rows=rows, has_more=found.has_more)


def correction_of(letter: CorrectedLetter) -> Correction:
    """Return a corrected record. Raise UserError if it is not valid Base64."""
    encoded = letter.raw_base64
    try:
        raw = None if encoded is None else base64.b64decode(encoded, validate=True)
        return Correction(raw, letter.source, letter.position)
    except ValueError as error:
        raise UserError(
            f"raw_base64 of dead letter {letter.id} is not valid Base64",
            hint="Encode the bytes of the record.",
        ) from error


def replayed_answer(outcome: ReplayOutcome) -> Replayed:
    """Return the effects of a replay."""
    finished = [_FINISHED] if outcome.has_finished and outcome.rows else []
    return Replayed(
        rows=outcome.rows,
        skipped=outcome.skipped,
        warnings=[*map(str, outcome.late), *finished],
    )

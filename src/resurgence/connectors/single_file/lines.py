"""Reading of spans of whole lines from a local file, in Spark tasks."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from resurgence.spark_tasks import ArrowFunction

BLOCK = 4 * 1024 * 1024
"""Bytes read at a time when lines are counted, and the minimum that one task reads."""


@dataclass(frozen=True)
class Span:
    """Whole lines of the file: bytes from `start` up to `end`, beginning with line `line`."""

    start: int
    end: int
    line: int


def cut_into_spans(
    path: Path, start: int, end: int, line: int, parallelism: int
) -> tuple[Span, ...]:
    """Cut bytes from `start` up to `end` into spans of whole lines, one per task."""
    pieces = max(1, min(parallelism, (end - start) // BLOCK))
    spans: list[Span] = []
    with path.open("rb") as file:
        for piece in range(1, pieces + 1):
            target = start + (end - start) // (pieces - piece + 1)
            file.seek(target)
            cut = min(end, target + len(file.readline())) if target < end else end
            spans.append(Span(start, cut, line))
            if piece < pieces:
                file.seek(start)
                line += _count_newlines(file, cut - start)
            start = cut
    return tuple(spans)


def _count_newlines(file: BinaryIO, length: int) -> int:
    total = 0
    while length > 0 and (block := file.read(min(BLOCK, length))):
        total += block.count(b"\n")
        length -= len(block)
    return total


def line_reader(path: str, spans: tuple[Span, ...]) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The row identifies the span. The task's number does not, because inputs may be in a UNION.
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read_span(path, spans[number])

    return read


def _read_span(path: str, span: Span) -> Iterator[pa.RecordBatch]:
    with Path(path).open("rb") as file:
        file.seek(span.start)
        line, left, carry = span.line, span.end - span.start, b""
        while left > 0 or carry:
            block = file.read(min(BLOCK, left)) if left > 0 else b""
            left -= len(block)
            if span.start == 0 and line == 0 and not carry:
                block = block.removeprefix(codecs.BOM_UTF8)
            if left > 0 and block:
                whole, newline, rest = (carry + block).rpartition(b"\n")
                if not newline:
                    carry += block
                    continue
                carry = rest
            else:
                whole, carry, left = (carry + block).removesuffix(b"\n"), b"", 0
            texts = pc.split_pattern(pa.array([whole], pa.binary()), b"\n").flatten()
            positions = pa.array(range(line, line + len(texts)), pa.int64())
            yield pa.RecordBatch.from_arrays([positions, texts], ["line", "raw"])
            line += len(texts)

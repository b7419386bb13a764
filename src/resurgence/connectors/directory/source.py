"""The `filesystem` source: the files of a growing folder, each read once.

A range names its files with size and ETag (`files`). Which files are unread follows from the position
(`positions`) and a listing (`listing`); what an epoch takes of them is decided in `planning`. How a
file is cut and read depends on what is in it (`content`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.contract import Source, left_out, raw_records
from resurgence.connectors.directory.column_content import ColumnContent
from resurgence.connectors.directory.content import HIDDEN, Content, with_partitions
from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.line_content import LineContent
from resurgence.connectors.directory.listing import Listing, selection_id
from resurgence.connectors.directory.options import DirectorySourceOptions, FileOrder
from resurgence.connectors.directory.planning import Budget, Choice, chosen
from resurgence.connectors.directory.positions import Position, advanced
from resurgence.connectors.directory.selection import Selection, require_partitions
from resurgence.errors import BadRecord, SourceRangeGone, UserError, did_you_mean
from resurgence.state.records import InputRange, Offset, RecordPosition
from resurgence.storage.local_files import StoredFile
from resurgence.storage.object_store import ObjectStore, is_missing_folder, split_url

log = logging.getLogger(__name__)

_BEFORE_ALL = -(2**62)
"""Before the modified time of every file."""
_BAD_RECORD_HINT = (
    "Set bad_data = 'dead_letter' on the table to store such records aside, or 'drop' to drop and"
    " count them."
)
_SHOWN_FILES = 3


class DirectorySource(Source):
    """The files of a folder."""

    counts_exactly = False

    def __init__(self, options: DirectorySourceOptions, declaration: SourceDeclaration) -> None:
        self._options = options
        self._table = declaration.table
        self._selection = Selection.of(options.path, options.regex_pattern)
        self._order = options.file_order
        self._require_fields(declaration)
        self._content = self._made_content(declaration)
        self.position_sql = (
            f"concat(position.partition, ', {self._content.unit} ', position.offset + 1)"
        )
        self.bad_data = options.bad_data
        self._unread = 0
        self._read_bytes = 0
        self._has_warned = False

    def _made_content(self, declaration: SourceDeclaration) -> Content:
        columns = with_partitions(declaration.columns, self._options.partition_fields)
        if declaration.format.is_columnar:
            return ColumnContent(lambda: self._store, self._selection, columns)
        reader = dataclasses.replace(declaration, columns=columns).reader(
            self._options, hidden=HIDDEN
        )
        compression = self._options.compression
        return LineContent(lambda: self._store, self._selection, compression, columns, reader)

    def _require_fields(self, declaration: SourceDeclaration) -> None:
        names = [each.name for each in declaration.columns if each.metadata is None]
        for each in self._options.partition_fields:
            if each not in names:
                raise UserError(
                    f"table '{self._table}': 'partitioning.fields' names '{each}', which is not a"
                    " column",
                    hint=did_you_mean(each, names),
                )

    @cached_property
    def _store(self) -> ObjectStore:
        self._require_folder()
        return ObjectStore(self._selection.url)

    @cached_property
    def _listing(self) -> Listing:
        return Listing(
            self._table,
            self._store,
            self._selection,
            self._options.discovery_interval,
            self._options.remembered_files,
        )

    def check(self) -> None:
        self._content.check()
        self._require_folder()

    def _require_folder(self) -> None:
        # Opening a store would create it.
        if is_missing_folder(self._selection.url):
            path = split_url(self._selection.url)[1]
            raise UserError(
                f"table '{self._table}': the folder {path} does not exist",
                hint="Check the option 'path'.",
            )

    # ---------------------------------------------------------------- plan

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        by_name = self._order is FileOrder.NAME
        stop = None
        if self._options.stop_at is not None:
            stop = self._listing.last(self._order) or (_BEFORE_ALL, "")
        return Position(
            order=self._order,
            selection=selection_id(self._selection),
            passed_modified=0 if by_name else _BEFORE_ALL,
            stop=stop,
        ).as_offset()

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        position = Position.of(offset)
        self._require_same_options(position)
        rest = position.rest_piece()
        budget = Budget(self._options.epoch_files, most_rows, self._options.epoch_bytes)
        if rest is not None:
            self._unread = 1
            choice = self._chosen([rest], budget)
            return self._range(offset, position, (), choice, budget, is_last=False)
        unread = self._listing.unread(position, now)
        self._unread = len(unread.files)
        if not unread.files:
            if position.stop is not None and unread.is_complete:
                return InputRange(start=offset, end=offset, rows=0, final=True)
            return None
        files = self._fitting(unread.files)
        try:
            choice = self._chosen(self._content.pieces(files), budget)
            taken = files[: len(choice.whole) or 1]
            is_last = (
                position.stop is not None and unread.is_complete and len(taken) == len(unread.files)
            )
            return self._range(offset, position, taken, choice, budget, is_last=is_last)
        except SourceRangeGone:
            # It has changed since it was listed, and was not planned before.
            self._listing.forget()
            return None

    def _require_same_options(self, position: Position) -> None:
        if position.order is not self._order:
            raise UserError(
                f"table '{self._table}': the job has read files in the order '{position.order}',"
                f" which cannot be changed to '{self._order}'",
                hint=f"Set 'source.order' = '{position.order}', or start a new job with another"
                " --name.",
            )
        if position.selection != selection_id(self._selection) and not self._has_warned:
            self._has_warned = True
            log.warning(
                "table '%s': its patterns were edited. They apply to files after those that were"
                " read. Files that appear too late are no longer noticed.",
                self._table,
            )

    def _fitting(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
        """Return the first files, as many as an epoch may read by number and size."""
        found: list[StoredFile] = []
        left = self._options.epoch_bytes
        for each in files[: self._options.epoch_files]:
            left -= each.size
            if found and left < 0:
                break
            place = self._selection.place(each.path)
            require_partitions(place, each.path, self._options.partition_fields)
            found.append(each)
        return tuple(found)

    def _chosen(self, pieces: Sequence[Piece], budget: Budget) -> Choice:
        content = self._content
        return chosen(
            pieces,
            budget,
            lambda each: content.rows(each) if each.most_rows else 0,
            content.size,
            content.can_be_cut,
        )

    def _range(
        self,
        offset: Offset,
        position: Position,
        files: Sequence[StoredFile],
        choice: Choice,
        budget: Budget,
        *,
        is_last: bool,
    ) -> InputRange:
        """Return the range that reads a choice and begins to read `files`."""
        pieces, rest = [each for each in choice.whole if each.most_rows], None
        if choice.cut is not None:
            head, rest = self._content.cut(choice.cut, budget.rows, budget.bytes)
            pieces = [head]
        self._unread += (rest is not None) - max(1, len(choice.whole))
        end = advanced(position, files, pieces, rest, self._options.remembered_files)
        return InputRange(
            start=offset,
            end=end.as_offset(),
            rows=sum(each.most_rows for each in pieces),
            final=is_last and rest is None,
        )

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        end = Position.of(input_range.end)
        pieces = end.pieces()
        if len(pieces) > 1:
            first, second = pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]
        else:
            halves = self._content.halves(pieces[0]) if pieces else None
            if halves is None:
                return None
            first, second = [halves[0]], [halves[1]]
        middle = end.with_pieces(first).as_offset()
        return (
            InputRange(
                start=input_range.start,
                end=middle,
                rows=sum(each.most_rows for each in first),
                excluded=input_range.excluded,
            ),
            InputRange(
                start=middle,
                end=end.with_pieces(second).as_offset(),
                rows=sum(each.most_rows for each in second),
                final=input_range.final,
                excluded=input_range.excluded,
            ),
        )

    # ---------------------------------------------------------------- read

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        return self._content.parsed(self._records(spark, input_range, parallelism))

    def records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        return raw_records(self._content.raw(self._records(spark, input_range, parallelism)))

    def _records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        pieces = Position.of(input_range.end).pieces()
        self._read_bytes = sum(map(self._content.size, pieces))
        return left_out(self._content.read(spark, pieces, parallelism), input_range.excluded)

    def parse(self, records: DataFrame) -> DataFrame:
        return self._content.parse_raw(records)

    def explainer(self) -> Callable[[bytes | None], str]:
        return self._content.explainer()

    def bad_record(self, input_range: InputRange, position: RecordPosition) -> BadRecord:
        unit = self._content.unit
        place = f"{position.partition}, {unit} {position.offset + 1}"
        piece = self._piece_at(input_range, position)
        fault = self._content.fault(piece, position)
        column = f", column {fault.column}" if fault.column is not None else ""
        return BadRecord(
            f"{place}{column}: {fault.reason}", hint=fault.hint or _BAD_RECORD_HINT, position=place
        )

    def _piece_at(self, input_range: InputRange, position: RecordPosition) -> Piece:
        return next(
            each
            for each in Position.of(input_range.end).pieces()
            if self._selection.place(each.path) == position.partition
        )

    def in_words(self, input_range: InputRange) -> str:
        pieces = Position.of(input_range.end).pieces()
        shown = [self._piece_in_words(each) for each in pieces[:_SHOWN_FILES]]
        more = f" and {len(pieces) - _SHOWN_FILES:,} more" if len(pieces) > _SHOWN_FILES else ""
        return (", ".join(shown) or "no files") + more

    def _piece_in_words(self, piece: Piece) -> str:
        place, unit = self._selection.place(piece.path), self._content.unit
        return f"{place} from {unit} {piece.line + 1}" if piece.start else place

    # ---------------------------------------------------------------- progress

    def unread(self) -> Mapping[str, int]:
        return {"files": self._unread} if self._unread > 0 else {}

    def measured(self, rows: int, size: int) -> None:
        self._content.measured(rows, self._read_bytes)

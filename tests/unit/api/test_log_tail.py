"""The end of a log, and its continuation from an offset."""

from __future__ import annotations

from pathlib import Path

from resurgence.api import log_tail
from resurgence.api.log_tail import LogPart, last_lines, lines_after


def test_a_tail_returns_the_last_lines_and_the_next_position(tmp_path: Path) -> None:
    file = tmp_path / "w.log"
    file.write_text("one\ntwo\nthrée\n")
    assert last_lines(file, 2) == LogPart("two\nthrée\n", 15)
    with file.open("a") as more:
        more.write("four\nfi")
    part = lines_after(file, 15)
    assert part == LogPart("four\n", 20)
    assert lines_after(file, 20) == LogPart("fi", 22), "the last words of a process that died"
    assert lines_after(file, 22) == LogPart("", 22)


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none.log", 5) == LogPart("", 0)
    assert lines_after(tmp_path / "none.log", 5) == LogPart("", 0)


def test_a_log_that_became_shorter_is_read_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "w.log"
    file.write_text("new\n")
    assert lines_after(file, 1000) == LogPart("new\n", 4)


def test_an_answer_is_bounded_and_begins_with_a_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "w.log"
    line = "x" * 99 + "\n"
    file.write_text(line * 20_000)
    tail = last_lines(file, 10_000_000)
    assert tail.text == line * (log_tail.MAX_PART_BYTES // 100 - 1)
    assert tail.next_offset == 2_000_000
    head = lines_after(file, 0)
    assert (len(head.text), head.next_offset) == (log_tail.MAX_PART_BYTES, log_tail.MAX_PART_BYTES)


def test_bytes_that_are_not_text_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "w.log"
    file.write_bytes(b"ok \xff\n")
    assert last_lines(file, 1).text == "ok \ufffd\n"

"""The stored formats: frozen samples, round trips, and what is refused."""

from __future__ import annotations

import json

import pytest

from resurgence.errors import DamagedState, NewerFormat
from resurgence.state.records import (
    CommittedRecord,
    CondemnedRecord,
    GenerationRecord,
    Manifest,
    OperatorCheckpointMetadata,
    Record,
    decode,
    digest_of,
)

SAMPLES: dict[type[Record], str] = {
    GenerationRecord: (
        '{"version":1,"job":"a1b2c3d4e5f6","generation":3,"claimed_at":"2030-01-02T03:04:05.6'
        '78000Z","claimed_by":"host:4711","checksum":"bc238e560c1cd083"}'
    ),
    OperatorCheckpointMetadata: (
        '{"version":1,"job":"a1b2c3d4e5f6","operator":"window-1","epoch":7,"generation":3,"pa'
        'rallelism":2,"watermark":1893456000000000,"timers":[1893456010000000],"tables":{"par'
        'tials":{"kind":"time","table_format":1,"schema_text":"bin BIGINT","files":[{"path":"'
        'rides/tables/window-1/partials/7-3-0-0123456789ab.parquet","subtask":0,"epoch":7,"ro'
        'ws":40,"bytes":1234,"key_groups":"5555555555555555","time_start":-10000000,"time_end'
        '":1893456000000000}],"values":{}},"offsets":{"kind":"global","table_format":1,"schem'
        'a_text":"","files":[],"values":{"byte":4096}}},"input":{"start":{"byte":0},"end":{"b'
        'yte":4096,"tail":null},"rows":100,"final":true},"checksum":"0cffe93518ccda1e"}'
    ),
    Manifest: (
        '{"version":1,"job":"a1b2c3d4e5f6","epoch":7,"attempt":1,"generation":3,"parent":6,"o'
        'perators":{"window-1":{"path":"rides/epochs/0000000007/operator-window-1-3.json","by'
        'tes":1,"sha256":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}}'
        ',"inputs":{"source-1":{"start":{"byte":0},"end":{"byte":4096,"tail":null},"rows":100'
        ',"final":true}},"counts":{"rows_in":{"source-1":100},"bad_rows":{"source-1":1},"late'
        '_rows":{"window-1":2},"rows_out":{"sink-1":7}},"finished":true,"sealed_at":"2030-01-'
        '02T03:04:05.678000Z","checksum":"6faea9a5cadacdfb"}'
    ),
    CommittedRecord: (
        '{"version":1,"job":"a1b2c3d4e5f6","epoch":7,"generation":3,"inputs":{"source-1":{"st'
        'art":{"byte":0},"end":{"byte":4096,"tail":null},"rows":100,"final":true}},"counts":{'
        '"rows_in":{"source-1":100},"bad_rows":{"source-1":1},"late_rows":{"window-1":2},"row'
        's_out":{"sink-1":7}},"committed_at":"2030-01-02T03:04:05.678000Z","checksum":"0a1021'
        'da4f038a66"}'
    ),
    CondemnedRecord: (
        '{"version":1,"job":"a1b2c3d4e5f6","epoch":7,"attempt":0,"generation":4,"reasons":["s'
        'tate file x is missing"],"checksum":"d7c8f3cb870d12da"}'
    ),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_frozen_sample_is_read_and_written_again_byte_for_byte(kind: type[Record]) -> None:
    data = SAMPLES[kind].encode()
    assert decode(kind, data, "sample").encode() == data


def test_there_is_a_sample_of_every_record() -> None:
    assert set(SAMPLES) == set(Record.__subclasses__())


def test_a_sample_means_what_it_says() -> None:
    data = SAMPLES[OperatorCheckpointMetadata].encode()
    metadata = decode(OperatorCheckpointMetadata, data, "sample")
    (file,) = metadata.tables["partials"].files
    assert file.key_groups == 0x5555_5555_5555_5555
    assert metadata.timers == (1_893_456_010_000_000,)
    assert metadata.input is not None
    assert metadata.input.end == {"byte": 4096, "tail": None}


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_newer_version_is_refused_and_never_guessed_at(kind: type[Record]) -> None:
    sample = decode(kind, SAMPLES[kind].encode(), "sample")
    newer = sample.model_copy(update={"version": 2}).encode()
    with pytest.raises(NewerFormat, match="some/path has format version 2") as caught:
        decode(kind, newer, "some/path")
    assert "release that wrote it" in caught.value.hint


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_truncation_is_damage(kind: type[Record]) -> None:
    data = SAMPLES[kind].encode()
    for length in range(len(data)):
        with pytest.raises(DamagedState):
            decode(kind, data[:length], "some/path")


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_flipped_bit_is_damage(kind: type[Record]) -> None:
    data = SAMPLES[kind].encode()
    for position in range(len(data)):
        for bit in (0, 1, 3, 7):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            # A bit of the version itself cannot be told from a newer format.
            with pytest.raises((DamagedState, NewerFormat)):
                decode(kind, bytes(flipped), "some/path")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b'"text"', b"\xff\xfe", b"{" * 5000])
def test_what_is_no_record_is_damage_and_names_its_place(data: bytes) -> None:
    with pytest.raises(DamagedState, match="some/path") as caught:
        decode(Manifest, data, "some/path")
    assert caught.value.path == "some/path"


def test_another_kind_of_record_is_damage() -> None:
    with pytest.raises(DamagedState, match="is not a Manifest"):
        decode(Manifest, SAMPLES[CommittedRecord].encode(), "some/path")


def test_a_record_is_plain_json_for_others_to_read() -> None:
    tree = json.loads(SAMPLES[Manifest])
    assert (tree["version"], tree["epoch"], len(tree["checksum"])) == (1, 7, 16)


def test_a_digest_is_of_all_bytes() -> None:
    digest = digest_of("p", b"abc")
    assert (digest.path, digest.bytes) == ("p", 3)
    assert digest.sha256.startswith("ba7816bf8f01cfea")
    assert digest_of("p", b"abd").sha256 != digest.sha256

"""The stored formats: frozen samples of every version, round trips, and what is refused."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import get_args

import pytest

from resurgence.errors import DamagedState, NewerFormat
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.records import (
    FORMAT_VERSION,
    CommittedRecord,
    CondemnedRecord,
    EpochCounts,
    GenerationRecord,
    InputRange,
    LeaseRecord,
    Manifest,
    ObjectDigest,
    OperatorCheckpointMetadata,
    Owner,
    OwnerKind,
    Record,
    RecordPosition,
    Replay,
    ReplayRequest,
    RollbackRecord,
    StateFile,
    TableCheckpoint,
    TableKind,
    ThinnedEpoch,
    ThinnedEpochs,
    Totals,
    decode,
    object_digest,
)

FORMAT_2: dict[type[Record], str] = {
    GenerationRecord: (
        '{"version":2,"job":"a1b2c3d4e5f6","generation":3,"claimed_at":"2030-01-02T03:04:05.67'
        '8000Z","claimed_by":"host:4711","rollback":1,"checksum":"e97d4cf0bc671d76"}'
    ),
    LeaseRecord: (
        '{"version":2,"job":"a1b2c3d4e5f6","generation":3,"owner":{"id":"run-1","kind":"run","'
        'host":"host","pid":4711,"since":"2030-01-02T03:04:05.678000Z","process_space":"boot p'
        'id:[1]","process_started":"99"},"renewed_at":"2030-01-02T03:04:05.678000Z","checksum"'
        ':"0091d3de85bff33b"}'
    ),
    OperatorCheckpointMetadata: (
        '{"version":2,"job":"a1b2c3d4e5f6","operator":"window-1","epoch":7,"generation":3,"par'
        'allelism":2,"watermark":1893456000000000,"timers":[1893456010000000],"tables":{"parti'
        'als":{"kind":"time","table_format":1,"schema_text":"bin BIGINT","files":[{"path":"rid'
        'es/tables/window-1/partials/7-3-0-0123456789ab.parquet","subtask":0,"epoch":7,"rows":'
        '40,"bytes":1234,"key_groups":"5555555555555555","time_start":-10000000,"time_end":189'
        '3456000000000,"digest":"0123456789abcdef0123456789abcdef"}],"values":{}},"offsets":{"'
        'kind":"global","table_format":1,"schema_text":"","files":[],"values":{"byte":4096}}},'
        '"input":{"start":{"byte":0},"end":{"byte":4096,"tail":null},"rows":100,"final":true,"'
        'idle":false,"planned_at":"2030-01-02T03:04:04.500000Z"},"checksum":"1c42bf042dba7146"'
        "}"
    ),
    Manifest: (
        '{"version":2,"job":"a1b2c3d4e5f6","epoch":7,"attempt":1,"generation":3,"parent":6,"op'
        'erators":{"window-1":{"path":"rides/epochs/0000000007/operator-window-1-3.json","byte'
        's":1,"sha256":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}},"i'
        'nputs":{"source-1":{"start":{"byte":0},"end":{"byte":4096,"tail":null},"rows":100,"fi'
        'nal":true,"idle":false,"planned_at":"2030-01-02T03:04:04.500000Z"}},"counts":{"rows_i'
        'n":{"source-1":100},"bad_rows":{"source-1":1},"late_rows":{"window-1":2},"partly_late'
        '_rows":{},"kept_rows":{"window-1":97},"rows_out":{"sink-1":7}},"totals":{"since":1,"c'
        'ounts":{"rows_in":{"source-1":700},"bad_rows":{"source-1":3},"late_rows":{"window-1":'
        '5},"partly_late_rows":{},"kept_rows":{"window-1":692},"rows_out":{"sink-1":40}}},"fin'
        'ished":true,"began_at":"2030-01-02T03:04:04.500000Z","sealed_at":"2030-01-02T03:04:05'
        '.678000Z","checksum":"cdec4df9d085ed6e"}'
    ),
    CommittedRecord: (
        '{"version":2,"job":"a1b2c3d4e5f6","epoch":7,"generation":3,"inputs":{"source-1":{"sta'
        'rt":{"byte":0},"end":{"byte":4096,"tail":null},"rows":100,"final":true,"idle":false,"'
        'planned_at":"2030-01-02T03:04:04.500000Z"}},"counts":{"rows_in":{"source-1":100},"bad'
        '_rows":{"source-1":1},"late_rows":{"window-1":2},"partly_late_rows":{},"kept_rows":{"'
        'window-1":97},"rows_out":{"sink-1":7}},"committed_at":"2030-01-02T03:04:05.678000Z","'
        'checksum":"2f82dccc1076c9fa"}'
    ),
    ThinnedEpochs: (
        '{"version":2,"job":"a1b2c3d4e5f6","epochs":{"6":{"inputs":{"source-1":{"start":{"byte'
        '":0},"end":{"byte":4096,"tail":null},"rows":100,"final":true,"idle":false,"planned_at'
        '":"2030-01-02T03:04:04.500000Z"}},"attempt":2}},"checksum":"740b60de21362b57"}'
    ),
    CondemnedRecord: (
        '{"version":2,"job":"a1b2c3d4e5f6","epoch":7,"attempt":0,"generation":4,"reasons":["st'
        'ate file x is missing"],"checksum":"9006574d74e4a0b1"}'
    ),
    RollbackRecord: (
        '{"version":2,"job":"a1b2c3d4e5f6","number":1,"to_epoch":4,"highest_epoch":6,"generati'
        'on":3,"recorded_at":"2030-01-02T03:04:05.678000Z","checksum":"0a3a6e6b83a4d098"}'
    ),
    ReplayRequest: (
        '{"version":2,"job":"a1b2c3d4e5f6","operator":"source-1","number":2,"path":"rides/repl'
        'ays/source-1/0123456789ab.parquet","rows":{"5":3,"6":1},"requested_at":"2030-01-02T03'
        ':04:05.678000Z","checksum":"40e06efb3034531c"}'
    ),
}

JOB = JobIdentity("a1b2c3d4e5f6")
SOURCE, WINDOW, SINK = OperatorId("source-1"), OperatorId("window-1"), OperatorId("sink-1")
AT = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
BEGAN_AT = datetime(2030, 1, 2, 3, 4, 4, 500_000, tzinfo=UTC)
READ = InputRange(
    start={"byte": 0},
    end={"byte": 4096, "tail": None},
    rows=100,
    final=True,
    planned_at=BEGAN_AT,
)
COUNTS = EpochCounts(
    rows_in={SOURCE: 100},
    bad_rows={SOURCE: 1},
    late_rows={WINDOW: 2},
    kept_rows={WINDOW: 97},
    rows_out={SINK: 7},
)
TOTAL = EpochCounts(
    rows_in={SOURCE: 700},
    bad_rows={SOURCE: 3},
    late_rows={WINDOW: 5},
    kept_rows={WINDOW: 692},
    rows_out={SINK: 40},
)
FILE = StateFile(
    path="rides/tables/window-1/partials/7-3-0-0123456789ab.parquet",
    subtask=0,
    epoch=Epoch(7),
    rows=40,
    bytes=1234,
    key_groups=0x5555_5555_5555_5555,
    time_start=-10_000_000,
    time_end=1_893_456_000_000_000,
    digest="0123456789abcdef0123456789abcdef",
)
MEANING: dict[type[Record], Record] = {
    GenerationRecord: GenerationRecord(
        job=JOB, generation=Generation(3), claimed_at=AT, claimed_by="host:4711", rollback=1
    ),
    LeaseRecord: LeaseRecord(
        job=JOB,
        generation=Generation(3),
        owner=Owner(
            id="run-1",
            kind=OwnerKind.RUN,
            host="host",
            pid=4711,
            since=AT,
            process_space="boot pid:[1]",
            process_started="99",
        ),
        renewed_at=AT,
    ),
    OperatorCheckpointMetadata: OperatorCheckpointMetadata(
        job=JOB,
        operator=WINDOW,
        epoch=Epoch(7),
        generation=Generation(3),
        parallelism=2,
        watermark=1_893_456_000_000_000,
        timers=(1_893_456_010_000_000,),
        tables={
            "partials": TableCheckpoint(
                kind=TableKind.TIME, schema_text="bin BIGINT", files=(FILE,)
            ),
            "offsets": TableCheckpoint(kind=TableKind.GLOBAL, values={"byte": 4096}),
        },
        input=READ,
    ),
    Manifest: Manifest(
        job=JOB,
        epoch=Epoch(7),
        attempt=1,
        generation=Generation(3),
        parent=Epoch(6),
        operators={
            WINDOW: ObjectDigest(
                path="rides/epochs/0000000007/operator-window-1-3.json",
                bytes=1,
                sha256="2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
            )
        },
        inputs={SOURCE: READ},
        counts=COUNTS,
        totals=Totals(since=Epoch(1), counts=TOTAL),
        finished=True,
        began_at=BEGAN_AT,
        sealed_at=AT,
    ),
    CommittedRecord: CommittedRecord(
        job=JOB,
        epoch=Epoch(7),
        generation=Generation(3),
        inputs={SOURCE: READ},
        counts=COUNTS,
        committed_at=AT,
    ),
    ThinnedEpochs: ThinnedEpochs(
        job=JOB, epochs={Epoch(6): ThinnedEpoch(inputs={SOURCE: READ}, attempt=2)}
    ),
    CondemnedRecord: CondemnedRecord(
        job=JOB,
        epoch=Epoch(7),
        attempt=0,
        generation=Generation(4),
        reasons=("state file x is missing",),
    ),
    RollbackRecord: RollbackRecord(
        job=JOB,
        number=1,
        to_epoch=Epoch(4),
        highest_epoch=Epoch(6),
        generation=Generation(3),
        recorded_at=AT,
    ),
    ReplayRequest: ReplayRequest(
        job=JOB,
        operator=SOURCE,
        number=2,
        path="rides/replays/source-1/0123456789ab.parquet",
        rows={Epoch(5): 3, Epoch(6): 1},
        requested_at=AT,
    ),
}
SAMPLES = {2: (FORMAT_2, MEANING)}
"""By format version: the frozen texts, and what each means today."""
NEWEST = FORMAT_2
KINDS = list(NEWEST)
EVERY_SAMPLE = [
    pytest.param(version, kind, id=f"{version}-{kind.__name__}")
    for version, (texts, _) in SAMPLES.items()
    for kind in texts
]


def sealed(tree: dict[str, object]) -> bytes:
    """A record as others could write it: its last field is the checksum of all before it."""
    body = {name: value for name, value in tree.items() if name != "checksum"}
    text = json.dumps(body, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()[:16]
    return json.dumps({**body, "checksum": checksum}, separators=(",", ":")).encode()


@pytest.mark.parametrize(("version", "kind"), EVERY_SAMPLE)
def test_the_checksum_is_the_one_that_the_docs_describe(version: int, kind: type[Record]) -> None:
    text = SAMPLES[version][0][kind]
    assert sealed(json.loads(text)).decode() == text


@pytest.mark.parametrize(("version", "kind"), EVERY_SAMPLE)
def test_a_frozen_sample_of_any_format_is_read_with_the_same_meaning(
    version: int, kind: type[Record]
) -> None:
    texts, meanings = SAMPLES[version]
    assert json.loads(texts[kind])["version"] == version
    assert decode(kind, texts[kind].encode(), "sample") == meanings[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_sample_of_today_is_written_again_byte_for_byte(kind: type[Record]) -> None:
    data = NEWEST[kind].encode()
    assert decode(kind, data, "sample").encode() == data


def test_excluded_and_replayed_records_and_dead_rows_survive_in_a_manifest() -> None:
    excluded = (RecordPosition(partition="rides/3", offset=17),)
    read = READ.model_copy(update={"excluded": excluded, "replay": Replay(number=2, rows=5)})
    counts = COUNTS.model_copy(update={"dead_rows": {SOURCE: 6}})
    committed = MEANING[CommittedRecord].model_copy(
        update={"inputs": {SOURCE: read}, "counts": counts}
    )
    assert decode(CommittedRecord, committed.encode(), "sample") == committed
    assert read.all_rows == 105


def test_there_is_a_sample_of_every_record_in_todays_format() -> None:
    assert NEWEST is SAMPLES[FORMAT_VERSION][0]
    assert set(NEWEST) == set(Record.__subclasses__())
    assert get_args(Record.model_fields["version"].annotation) == (FORMAT_VERSION,)


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_version_is_refused(kind: type[Record]) -> None:
    newer = FORMAT_VERSION + 1
    sample = decode(kind, NEWEST[kind].encode(), "sample")
    with pytest.raises(NewerFormat) as caught:
        decode(kind, sample.model_copy(update={"version": newer}).encode(), "some/path")
    assert caught.value.message == (
        f"some/path has format version {newer}, but this release reads up to {FORMAT_VERSION}"
    )
    assert "release that wrote the record" in caught.value.hint
    assert caught.value.intact


@pytest.mark.parametrize("version", [0, 1, -1, 1.5, True, "2", None])
def test_an_invalid_version_is_damage(version: object) -> None:
    strange = {**json.loads(NEWEST[Manifest]), "version": version}
    with pytest.raises(DamagedState, match="is not a Manifest: version"):
        decode(Manifest, sealed(strange), "some/path")


def test_counts_are_summed_by_operator() -> None:
    one = EpochCounts(rows_in={SOURCE: 3}, kept_rows={WINDOW: 2})
    other = EpochCounts(rows_in={SOURCE: 4, OperatorId("source-2"): 5}, rows_out={SINK: 1})
    assert one.plus(other) == EpochCounts(
        rows_in={SOURCE: 7, OperatorId("source-2"): 5}, kept_rows={WINDOW: 2}, rows_out={SINK: 1}
    )


@pytest.mark.parametrize(("version", "kind"), EVERY_SAMPLE)
def test_every_truncation_is_damage(version: int, kind: type[Record]) -> None:
    data = SAMPLES[version][0][kind].encode()
    for length in range(len(data)):
        with pytest.raises(DamagedState):
            decode(kind, data[:length], "some/path")


@pytest.mark.parametrize(("version", "kind"), EVERY_SAMPLE)
def test_every_flipped_bit_is_damage(version: int, kind: type[Record]) -> None:
    data = SAMPLES[version][0][kind].encode()
    for position in range(len(data)):
        for bit in (0, 1, 3, 7):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            # A bit of the version itself cannot be distinguished from a newer format.
            with pytest.raises((DamagedState, NewerFormat)):
                decode(kind, bytes(flipped), "some/path")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b'"text"', b"\xff\xfe", b"{" * 5000])
def test_bytes_that_are_no_record_are_damage_with_a_path(data: bytes) -> None:
    with pytest.raises(DamagedState, match="some/path") as caught:
        decode(Manifest, data, "some/path")
    assert caught.value.path == "some/path"


def test_another_kind_of_record_is_damage() -> None:
    with pytest.raises(DamagedState, match="is not a Manifest"):
        decode(Manifest, NEWEST[CommittedRecord].encode(), "some/path")


def test_a_record_is_plain_json_for_others_to_read() -> None:
    tree = json.loads(NEWEST[Manifest])
    assert (tree["version"], tree["epoch"], len(tree["checksum"])) == (2, 7, 16)


def test_a_digest_is_of_all_bytes() -> None:
    digest = object_digest("p", b"abc")
    assert (digest.path, digest.bytes) == ("p", 3)
    assert digest.sha256.startswith("ba7816bf8f01cfea")
    assert object_digest("p", b"abd").sha256 != digest.sha256

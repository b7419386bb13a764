"""librdkafka by ctypes: a producer that takes whole columns, and its transactions.

confluent_kafka has no call that produces more than one message, so a loop over rows would run in
Python. `rd_kafka_produce_batch` takes an array of structs, which numpy builds from the offsets of
Arrow columns. The library is the one inside the confluent_kafka package, so there is one version
of it, and one set of settings for both.

Messages are not copied: librdkafka sends them from the memory of the columns. A `NativeProducer`
holds a reference to every batch until it is closed.

Every call that waits has a deadline. Errors are raised as confluent_kafka's KafkaException.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resurgence.connectors.kafka.connection import require_client
from resurgence.errors import ConfigError

_PRODUCER = 0
_CONF_OK = 0
_ANY_PARTITION = -1
_EACH_PARTITION = 0x8
"""RD_KAFKA_MSG_F_PARTITION: each message names its partition."""
_PURGE_ALL = 0x1 | 0x2
_CHECK_MILLIS = 500
"""How often to check whether a transaction has failed while its messages are sent."""

MESSAGE = np.dtype(
    [
        ("err", np.int32),
        ("rkt", np.uintp),
        ("partition", np.int32),
        ("payload", np.uintp),
        ("len", np.uintp),
        ("key", np.uintp),
        ("key_len", np.uintp),
        ("offset", np.int64),
        ("private", np.uintp),
    ],
    align=True,
)
"""rd_kafka_message_t."""


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


_REPORT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Message), ctypes.c_void_p)


@dataclass(frozen=True)
class Refused:
    """The first message of a batch that was not delivered."""

    row: int
    code: int


@functools.cache
def _library() -> Any:
    """Load the library of the confluent_kafka package, with the types of the calls used here."""
    require_client()
    library = ctypes.CDLL(_path())
    text, handle, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int
    signatures = {
        "rd_kafka_conf_new": (handle, ()),
        "rd_kafka_conf_destroy": (None, (handle,)),
        "rd_kafka_conf_set": (number, (handle, text, text, text, ctypes.c_size_t)),
        "rd_kafka_conf_set_dr_msg_cb": (None, (handle, _REPORT)),
        "rd_kafka_new": (handle, (number, handle, text, ctypes.c_size_t)),
        "rd_kafka_topic_new": (handle, (handle, text, handle)),
        "rd_kafka_topic_destroy": (None, (handle,)),
        "rd_kafka_metadata": (
            number,
            (handle, number, handle, ctypes.POINTER(handle), number),
        ),
        "rd_kafka_metadata_destroy": (None, (handle,)),
        "rd_kafka_produce_batch": (number, (handle, ctypes.c_int32, number, handle, number)),
        "rd_kafka_poll": (number, (handle, number)),
        "rd_kafka_flush": (number, (handle, number)),
        "rd_kafka_outq_len": (number, (handle,)),
        "rd_kafka_purge": (number, (handle, number)),
        "rd_kafka_destroy": (None, (handle,)),
        "rd_kafka_init_transactions": (handle, (handle, number)),
        "rd_kafka_begin_transaction": (handle, (handle,)),
        "rd_kafka_commit_transaction": (handle, (handle, number)),
        "rd_kafka_abort_transaction": (handle, (handle, number)),
        "rd_kafka_error_code": (number, (handle,)),
        "rd_kafka_error_string": (text, (handle,)),
        "rd_kafka_error_is_fatal": (number, (handle,)),
        "rd_kafka_error_is_retriable": (number, (handle,)),
        "rd_kafka_error_txn_requires_abort": (number, (handle,)),
        "rd_kafka_error_destroy": (None, (handle,)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _path() -> str:
    """Return the library's file: in the wheel on Linux, in the wheel on macOS, or the system's."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    folders = (package.parent / "confluent_kafka.libs", package / ".dylibs")
    for folder in folders:
        for found in sorted(folder.glob("librdkafka*")):
            return str(found)
    system = ctypes.util.find_library("rdkafka")
    if system is None:
        raise ConfigError(
            f"the package confluent-kafka in {package} has no librdkafka",
            hint="Install its wheel, or librdkafka as a system library.",
        )
    return system


def message_array(
    values: pa.Array, keys: pa.Array | None, partitions: pa.Array | None
) -> npt.NDArray[Any]:
    """Return messages that point into the memory of columns, which must outlive them. A null value
    is a tombstone. `private` is the row.
    """
    messages = np.zeros(len(values), dtype=MESSAGE)
    messages["payload"], messages["len"] = _pieces(values)
    if keys is not None:
        messages["key"], messages["key_len"] = _pieces(keys)
    messages["partition"] = _ANY_PARTITION if partitions is None else partitions.to_numpy()
    messages["private"] = np.arange(len(values))
    return messages


def _pieces(column: pa.Array) -> tuple[npt.NDArray[np.uintp], npt.NDArray[np.uintp]]:
    """Return the address and the length of each value; address 0 for nulls."""
    _, offsets_buffer, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, dtype=width)[
        column.offset : column.offset + len(column) + 1
    ]
    # Any address but 0 does for values without bytes: 0 would make them null.
    base = data.address if data is not None and data.size else offsets_buffer.address
    addresses = offsets[:-1].astype(np.uintp) + np.uintp(base)
    if column.null_count:
        addresses[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return addresses, np.diff(offsets).astype(np.uintp)


class NativeProducer:
    """A producer of librdkafka. Close it: it holds connections, threads and the batches."""

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        self._library = _library()
        self._batches: list[object] = []
        self._topics: dict[str, int] = {}
        self._refused: Refused | None = None
        self._is_in_transaction = False
        self._report = _REPORT(self._note_failure)
        """Held here: librdkafka has only its address."""
        reason = ctypes.create_string_buffer(512)
        conf = self._library.rd_kafka_conf_new()
        # Reports of delivered messages would be one call of Python for each.
        for name, value in {**settings, "delivery.report.only.error": True}.items():
            written = str(value).lower() if isinstance(value, bool) else str(value)
            done = self._library.rd_kafka_conf_set(
                conf, name.encode(), written.encode(), reason, len(reason)
            )
            if done != _CONF_OK:
                self._library.rd_kafka_conf_destroy(conf)
                raise ConfigError(f"librdkafka refuses '{name}': {reason.value.decode()}")
        self._library.rd_kafka_conf_set_dr_msg_cb(conf, self._report)
        self._handle = self._library.rd_kafka_new(_PRODUCER, conf, reason, len(reason))
        if not self._handle:
            self._library.rd_kafka_conf_destroy(conf)
            raise ConfigError(f"librdkafka refuses its settings: {reason.value.decode()}")

    def __enter__(self) -> NativeProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what was not sent, and end all threads."""
        self._library.rd_kafka_purge(self._handle, _PURGE_ALL)
        self._library.rd_kafka_poll(self._handle, 0)
        for topic in self._topics.values():
            self._library.rd_kafka_topic_destroy(topic)
        # Waits for all its threads: they use the memory of the batches, and the callback.
        self._library.rd_kafka_destroy(self._handle)
        self._batches.clear()

    # ---------------------------------------------------------------- transactions

    def init_transactions(self, seconds: float) -> None:
        """Fence every earlier producer with this transactional id, and end its transaction."""
        self._repeat(self._library.rd_kafka_init_transactions, seconds)

    def begin(self) -> None:
        self._raise(self._library.rd_kafka_begin_transaction(self._handle))
        self._is_in_transaction = True

    def commit(self, seconds: float) -> None:
        self._repeat(self._library.rd_kafka_commit_transaction, seconds)
        self._is_in_transaction = False

    def abort(self, seconds: float) -> None:
        self._is_in_transaction = False
        self._repeat(self._library.rd_kafka_abort_transaction, seconds)

    def _require_intact(self) -> None:
        """Raise the error by which the transaction has failed, if it has. Its messages would wait
        until they time out.

        librdkafka has no call for that. It refuses a second `begin`, with that error or with the
        one that a transaction is open.
        """
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._raise(self._library.rd_kafka_begin_transaction(self._handle))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise

    def _repeat(self, call: Any, seconds: float) -> None:
        """Make a call that may be repeated, until it succeeds, fails for good or is too late."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + seconds
        while True:
            left = max(1, round((deadline - time.monotonic()) * 1000))
            try:
                return self._raise(call(self._handle, left))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _raise(self, error: int | None) -> None:
        """Raise what a call returned, if it is an error."""
        if not error:
            return
        from confluent_kafka import KafkaError, KafkaException

        library = self._library
        try:
            raise KafkaException(
                KafkaError(
                    library.rd_kafka_error_code(error),
                    library.rd_kafka_error_string(error).decode(errors="replace"),
                    bool(library.rd_kafka_error_is_fatal(error)),
                    bool(library.rd_kafka_error_is_retriable(error)),
                    bool(library.rd_kafka_error_txn_requires_abort(error)),
                )
            )
        finally:
            library.rd_kafka_error_destroy(error)

    # ---------------------------------------------------------------- messages

    def produce(self, topic: str, batch: pa.RecordBatch, seconds: float) -> Refused | None:
        """Produce the columns `value`, `key` and `partition` of a batch, in order, the last two if
        it has them. Wait until all are delivered. Return the first message that was refused.

        The local queue has no limit, so a batch fits in it as a whole: if messages were retried,
        later ones would overtake them.
        """
        names = batch.schema.names
        messages = message_array(
            batch.column("value"),
            batch.column("key") if "key" in names else None,
            batch.column("partition") if "partition" in names else None,
        )
        self._batches.append((batch, messages))
        self._refused = None
        enqueued = self._library.rd_kafka_produce_batch(
            self._topic(topic, seconds),
            _ANY_PARTITION,
            _EACH_PARTITION,
            messages.ctypes.data,
            len(messages),
        )
        if enqueued < len(messages):
            row = int(np.flatnonzero(messages["err"])[0])
            return Refused(row, int(messages["err"][row]))
        refused = self._delivered(seconds)
        if refused is None:
            self._batches.clear()
        return refused

    def _delivered(self, seconds: float) -> Refused | None:
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + seconds
        purged = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
        while self._library.rd_kafka_outq_len(self._handle) and self._refused is None:
            if time.monotonic() > deadline:
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, f"not delivered in {seconds:.0f} s")
                )
            self._library.rd_kafka_flush(self._handle, _CHECK_MILLIS)
            if self._is_in_transaction and (self._refused is None or self._refused.code in purged):
                self._require_intact()
        return self._refused

    def _topic(self, name: str, seconds: float) -> int:
        """Return the handle of a topic whose partitions are known. A message that names its
        partition would be lost in a transaction otherwise: librdkafka adds partition -1 to it.
        """
        from confluent_kafka import KafkaError, KafkaException

        if name not in self._topics:
            topic = self._library.rd_kafka_topic_new(self._handle, name.encode(), None)
            self._topics[name] = topic
            found = ctypes.c_void_p()
            code = self._library.rd_kafka_metadata(
                self._handle, 0, topic, ctypes.byref(found), round(seconds * 1000)
            )
            if code:
                raise KafkaException(KafkaError(code))
            self._library.rd_kafka_metadata_destroy(found)
        return self._topics[name]

    def _note_failure(self, _handle: int, message: Any, _opaque: object) -> None:
        failed = message.contents
        if failed.err and self._refused is None:
            self._refused = Refused(failed.private or 0, failed.err)

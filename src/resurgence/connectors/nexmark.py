"""`nexmark`: the events of an auction site, computed in Spark, the same for the same offset.

Of 50 events one is a new person, three are new auctions, 46 are bids. An event is a function of its
number alone, drawn by hashing the number, so that a range read again has the same rows. Numbers,
rate and offsets are those of `impulse`.

Events are out of order, as in the benchmark: the numbers of a group of up to 50 are shuffled, and
an event has the time of its own number. A group spans at most a second, so that no event is late
for the default watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import model_validator
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.connector import Connector, SourceRole
from resurgence.connectors.contract import whole_number
from resurgence.connectors.generator import FEW, NUMBER, numbers
from resurgence.connectors.impulse import (
    POSITIVE_HINT,
    ImpulseOptions,
    ImpulseSource,
    PositiveNumber,
)
from resurgence.errors import UserError
from resurgence.graph.table_options import option
from resurgence.graph.values import Column
from resurgence.state.records import InputRange

_PERSON = {
    "id": "BIGINT",
    "name": "STRING",
    "email_address": "STRING",
    "credit_card": "STRING",
    "city": "STRING",
    "state": "STRING",
    "datetime": "TIMESTAMP",
    "extra": "STRING",
}
_AUCTION = {
    "id": "BIGINT",
    "description": "STRING",
    "item_name": "STRING",
    "initial_bid": "BIGINT",
    "reserve": "BIGINT",
    "datetime": "TIMESTAMP",
    "expires": "TIMESTAMP",
    "seller": "BIGINT",
    "category": "BIGINT",
    "extra": "STRING",
}
_BID = {
    "auction": "BIGINT",
    "bidder": "BIGINT",
    "price": "BIGINT",
    "channel": "STRING",
    "url": "STRING",
    "datetime": "TIMESTAMP",
    "extra": "STRING",
}


def _struct_type(fields: Mapping[str, str]) -> str:
    return f"STRUCT<{', '.join(f'`{name}`: {kind}' for name, kind in fields.items())}>"


COLUMNS = (
    Column(name="person", type=_struct_type(_PERSON)),
    Column(name="auction", type=_struct_type(_AUCTION)),
    Column(name="bid", type=_struct_type(_BID)),
    Column(name="timestamp", type="TIMESTAMP", nullable=False),
)

_GROUP = 50
"""Events of which one is a person and three are auctions; also the largest shuffled group."""
_SHUFFLE = 953
"""A prime above any group: multiplying by it permutes a group."""
_FIRST_ID = 1000
_FIRST_CATEGORY = 10
_CATEGORIES = 5
_AUCTIONS_IN_FLIGHT = 100
_ACTIVE_PEOPLE = 1000
_LEAD = 10
"""How many people and auctions may be referred to before they appear."""
_HOT_RATIO = 100
"""Of this many consecutive people or auctions, the first is the hot one."""
_CHANNELS = 10_000
_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_HOT_PATHS = ("abo/eoci/cidro", "eoax/oad/cidro", "abo/jack/cidro", "abo/micah/cidro")


class NexmarkOptions(ImpulseOptions):
    """The options of a `nexmark` source: those of `impulse`, and how long it runs."""

    runtime: PositiveNumber | None = option(
        "the number of seconds at `event_rate` after which the input ends",
        default=None,
        hint=POSITIVE_HINT,
    )

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if self.runtime is not None and self.event_rate is None:
            raise UserError(
                "option 'runtime' requires option 'event_rate'",
                hint="Set 'event_rate', or set 'message_count' instead of 'runtime'.",
            )
        if self.runtime is not None and self.message_count is not None:
            raise UserError(
                "options 'runtime' and 'message_count' are mutually exclusive",
                hint="Remove one of them.",
            )
        return self

    @property
    def as_impulse(self) -> ImpulseOptions:
        """The options of `impulse`: the running time is converted to a number of events."""
        if self.runtime is None or self.event_rate is None:
            return self
        return self.model_copy(update={"message_count": int(self.runtime * self.event_rate)})


class NexmarkSource(ImpulseSource):
    """A generator of people, auctions and bids, at a fixed rate or as fast as possible."""

    name = "nexmark"

    def __init__(self, options: NexmarkOptions, columns: Sequence[Column]) -> None:
        super().__init__(options.as_impulse, columns)

    def numbered(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        start, end = (
            whole_number(input_range.start, "counter"),
            whole_number(input_range.end, "counter"),
        )
        first = whole_number(input_range.start, "start_micros")
        group = max(1, min(_GROUP, 1_000_000 // self._interval))
        placed = (
            numbers(spark, start, end, parallelism)
            .selectExpr("id", f"id DIV {group} * {group} + (id * {_SHUFFLE}) % {group} AS n")
            .selectExpr(
                "id",
                "n",
                f"n % {_GROUP} AS place",
                f"n DIV {_GROUP} AS last_person",
                f"n DIV {_GROUP} * 3 + least(n % {_GROUP}, 3) - 1 AS last_auction",
                f"timestamp_micros({first} + n * {self._interval}) AS at",
            )
        )
        # Three queries, because the JVM would not compile a method as long as one for all three.
        people = self._events(placed.where("place = 0"), "person", _person())
        auctions = self._events(
            placed.where("place BETWEEN 1 AND 3"), "auction", _auction(self._interval)
        )
        bids = self._events(placed.where("place > 3"), "bid", _bid())
        return people.union(auctions).union(bids).coalesce(parallelism if end - start > FEW else 1)

    def _events(self, placed: DataFrame, name: str, sql: str) -> DataFrame:
        """Return the declared columns of the events of one kind, and their numbers."""
        values = {name: sql, "timestamp": "at"}
        return placed.selectExpr(
            *(
                f"{values.get(each.name.lower(), f'CAST(NULL AS {each.type})')} AS `{each.name}`"
                for each in self._columns
            ),
            f"id AS `{NUMBER}`",
        )


NEXMARK = Connector(
    "nexmark",
    source=SourceRole(
        make=lambda options, table: NexmarkSource(options, table.columns),
        options=NexmarkOptions,
        fixed_columns=COLUMNS,
        event_time="timestamp",
    ),
)


# ---------------------------------------------------------------- values drawn from `n`


def _draw(salt: str, below: int | str, of: str = "n") -> str:
    """A number from 0 up to but not including `below`."""
    return f"pmod(xxhash64({of}, '{salt}'), CAST({below} AS BIGINT))"


def _choice(salt: str, values: Sequence[str]) -> str:
    listed = ", ".join(f"'{each}'" for each in values)
    return f"element_at(array({listed}), CAST({_draw(salt, len(values))} + 1 AS INT))"


def _text(salt: str, length: int, of: str = "n") -> str:
    """A text of `length` letters and digits."""
    parts = (f"lpad(hex(xxhash64({of}, '{salt} {at}')), 16, '0')" for at in range(0, length, 16))
    return f"substring(concat({', '.join(parts)}), 1, {length})"


def _word(salt: str, longest: int, of: str = "n") -> str:
    """A text of at least 3 and fewer than `longest` characters."""
    length = _draw(f"length of {salt}", longest - 3, of)
    return f"substring({_text(salt, longest, of)}, 1, CAST(3 + {length} AS INT))"


def _price(salt: str) -> str:
    """A log-uniform price from 100 to 100 million."""
    return f"CAST(pow(10.0D, {_draw(salt, 6_000_000)} / 1000000.0D) * 100 AS BIGINT)"


def _known_person(salt: str) -> str:
    """A person of the last thousand, or one who appears soon."""
    active = f"least(last_person, {_ACTIVE_PEOPLE})"
    return f"last_person - {active} + {_draw(salt, f'{active} + {_LEAD}')}"


def _known_auction(salt: str) -> str:
    """An auction of the last hundred, or one that appears soon."""
    oldest = f"greatest(0, last_auction - {_AUCTIONS_IN_FLIGHT})"
    return f"{oldest} + {_draw(salt, f'last_auction - {oldest} + 1 + {_LEAD}')}"


def _hot(last: str) -> str:
    return f"{last} DIV {_HOT_RATIO} * {_HOT_RATIO}"


def _struct(fields: Mapping[str, str]) -> str:
    listed = (f"'{name}', {sql}" for name, sql in fields.items())
    return f"named_struct({', '.join(listed)})"


def _person() -> str:
    digits = (f"lpad({_draw(f'card {part}', 10_000)}, 4, '0')" for part in range(4))
    fields = {
        "id": f"last_person + {_FIRST_ID}",
        "name": f"concat({_choice('first', _FIRST_NAMES)}, ' ', {_choice('last', _LAST_NAMES)})",
        "email_address": f"concat({_word('mailbox', 7)}, '@', {_word('host', 5)}, '.com')",
        "credit_card": f"concat_ws(' ', {', '.join(digits)})",
        "city": _choice("city", _CITIES),
        "state": _choice("state", _STATES),
        "datetime": "at",
        "extra": _text("person", 124),
    }
    return _struct(fields)


def _auction(interval: int) -> str:
    horizon = interval * _AUCTIONS_IN_FLIGHT * _GROUP // 3
    is_hot = f"{_draw('hot seller', 4)} > 0"
    seller = f"IF({is_hot}, {_hot('last_person')}, {_known_person('seller')})"
    fields = {
        "id": f"last_auction + {_FIRST_ID}",
        "description": _word("description", 100),
        "item_name": _word("item", 20),
        "initial_bid": _price("initial"),
        "reserve": f"{_price('initial')} + {_price('reserve')}",
        "datetime": "at",
        "expires": f"timestamp_micros(unix_micros(at) + 2 + {_draw('length', 2 * horizon)})",
        "seller": f"{seller} + {_FIRST_ID}",
        "category": f"{_FIRST_CATEGORY} + {_draw('category', _CATEGORIES)}",
        "extra": _text("auction", 384),
    }
    return _struct(fields)


def _bid() -> str:
    auction = (
        f"IF({_draw('hot auction', 2)} > 0, {_hot('last_auction')}, {_known_auction('auction')})"
    )
    bidder = f"IF({_draw('hot bidder', 4)} > 0, {_hot('last_person')}, {_known_person('bidder')})"
    is_hot = f"{_draw('hot channel', 2)} > 0"
    channel = _draw("channel", _CHANNELS)
    path = f"concat_ws('/', {', '.join(_word(f'path {part}', 5, channel) for part in range(3))})"
    has_id = f"{_draw('has id', 10, channel)} > 0"
    site, page = "'https://www.nexmark.com/'", "'/item.htm?query=1'"
    # The same draw chooses the hot channel and its URL.
    fields = {
        "auction": f"{auction} + {_FIRST_ID}",
        "bidder": f"{bidder} + {_FIRST_ID}",
        "price": _price("price"),
        "channel": f"IF({is_hot}, {_choice('hot', _HOT_CHANNELS)}, concat('channel-', {channel}))",
        "url": f"IF({is_hot}, concat({site}, {_choice('hot', _HOT_PATHS)}, {page}),"
        f" concat({site}, {path}, {page}, IF({has_id}, concat('&channel_id=', {channel}), '')))",
        "datetime": "at",
        "extra": _text("bid", 68),
    }
    return _struct(fields)

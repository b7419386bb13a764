"""The inputs of the SQL cases: small sets of rows, the same for the same name and size.

Rows come out of order by less than their table's watermark lags, so that none is late however the
input is cut into epochs. Keys and values are null now and then.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

Record = dict[str, object]

_START = datetime(2024, 3, 1)
UNAVAILABLE = "__debezium_unavailable_value"


@dataclass(frozen=True)
class Input:
    """A file of JSON lines, and the columns it is declared with."""

    name: str
    columns: str
    rows: tuple[Record, ...]
    delay: str = "30 seconds"
    is_lookup: bool = False
    """It is a folder of Parquet files, to be looked up; the case declares it."""

    @property
    def schema(self) -> str:
        """The columns for Spark's own reader."""
        return self.columns.replace("TEXT", "STRING").replace(" NOT NULL", "")

    @property
    def declaration(self) -> str:
        """CREATE TABLE as a user would write it. Event time is the column `at`."""
        return (
            f"CREATE TABLE {self.name} ({self.columns},"
            f" WATERMARK FOR at AS at - INTERVAL '{self.delay}')"
            f" WITH (connector = 'single_file', path = '$input/{self.name}.json',"
            " format = 'json', type = 'source');\n"
        )


def _times(chance: random.Random, count: int, step: int) -> Iterator[str]:
    """Instants that go on by up to `step` seconds, each up to 25 seconds early."""
    at = _START
    for _ in range(count):
        at += timedelta(seconds=chance.randint(0, step))
        early = at - timedelta(milliseconds=chance.randint(0, 25_000))
        yield early.isoformat()


def rides(count: int = 240) -> Input:
    """Taxi rides, about two an hour's minute: keys with nulls, decimals, floats, a flag."""
    chance = random.Random(f"rides {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "driver": chance.choice([*range(1, 9), None]),
            "kind": chance.choice(["city", "airport", "pool", None]),
            "price": chance.randint(100, 9900) / 100 if chance.random() > 0.05 else None,
            "km": chance.randint(1, 400) / 8,
            "done": chance.choice([True, True, False, None]),
        }
        for at in _times(chance, count, 60)
    )
    columns = (
        "at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT, price DECIMAL(10,2), km DOUBLE,"
        " done BOOLEAN"
    )
    return Input("rides", columns, rows)


def pings(count: int = 200) -> Input:
    """Positions of cars, in bursts with pauses between them."""
    chance = random.Random(f"pings {count}")
    at, rows = _START, list[Record]()
    for _ in range(count):
        pause = chance.choice([1, 2, 5, 10, 10, 40, 150])
        at += timedelta(seconds=pause)
        early = at - timedelta(seconds=chance.randint(0, 8))
        rows.append(
            {
                "at": early.isoformat(),
                "car": chance.choice(["a", "b", "c", None]),
                "speed": chance.randint(0, 130),
            }
        )
    return Input("pings", "at TIMESTAMP, car TEXT, speed INT", tuple(rows), "10 seconds")


def orders(count: int = 150) -> Input:
    """Orders, each with its number; some customers are unknown."""
    chance = random.Random(f"orders {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "id": number,
            "customer": chance.choice([1, 2, 3, 4, 5, 6, None]),
            "amount": chance.randint(1, 500),
        }
        for number, at in enumerate(_times(chance, count, 30))
    )
    return Input("orders", "at TIMESTAMP, id BIGINT, customer BIGINT, amount BIGINT", rows)


def payments(count: int = 150) -> Input:
    """Payments of orders: some twice, some of orders that do not exist."""
    chance = random.Random(f"payments {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "order_id": chance.choice([number, chance.randint(0, count + 20), None]),
            "customer": chance.choice([2, 3, 4, 5, 6, 7, None]),
            "method": chance.choice(["card", "cash", None]),
        }
        for number, at in enumerate(_times(chance, count, 30))
    )
    columns = "at TIMESTAMP, order_id BIGINT, customer BIGINT, method TEXT"
    return Input("payments", columns, rows)


def clicks(count: int = 160) -> Input:
    """Clicks with nested values: a list, a struct, a map, and a text that holds JSON."""
    chance = random.Random(f"clicks {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "person": chance.choice(["ann", "bob", "cem", None]),
            "tags": chance.choice([[], ["x"], ["x", "y"], ["y", None, "z"], None]),
            "device": {"os": chance.choice(["linux", "mac"]), "version": chance.randint(1, 3)},
            "props": {"page": chance.choice(["home", "cart"]), "ref": chance.choice(["a", "b"])},
            "body": json.dumps({"n": chance.randint(0, 9), "who": {"name": f"p{number % 5}"}}),
        }
        for number, at in enumerate(_times(chance, count, 40))
    )
    columns = (
        "at TIMESTAMP, person TEXT, tags ARRAY<TEXT>, device STRUCT<os: TEXT, version: INT>,"
        " props MAP<TEXT, TEXT>, body TEXT"
    )
    return Input("clicks", columns, rows)


def many(count: int = 200_000) -> Input:
    """Half as many keys as rows."""
    rows: tuple[Record, ...] = tuple(
        {
            "at": (_START + timedelta(milliseconds=number)).isoformat(),
            "key": number * 7919 % (count // 2),
            "value": number % 1000,
        }
        for number in range(count)
    )
    return Input("many", "at TIMESTAMP, key BIGINT, value BIGINT", rows)


def skewed(count: int = 300) -> Input:
    """Nine of ten rows have one key."""
    chance = random.Random(f"skewed {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "key": 0 if chance.random() < 0.9 else chance.randint(1, 20),
            "value": chance.randint(1, 100),
        }
        for at in _times(chance, count, 10)
    )
    return Input("skewed", "at TIMESTAMP, key BIGINT, value BIGINT", rows)


def stock(count: int = 150) -> Input:
    """A change stream in Debezium's form: items come, change their amount and price, and go."""
    chance = random.Random(f"stock {count}")
    at, live, rows = _START, dict[int, Record](), list[Record]()
    for _ in range(count):
        at += timedelta(seconds=chance.randint(1, 20))
        item = chance.randint(1, 25)
        before = live.get(item)
        after: Record | None = {
            "id": item,
            "kind": chance.choice(["tool", "toy", None]),
            "amount": chance.randint(0, 50),
            "at": at.isoformat(),
        }
        if before is not None and chance.random() < 0.3:
            after = None
        op = "c" if before is None else "u" if after else "d"
        rows.append({"before": before, "after": after, "op": op})
        if after is None:
            del live[item]
        else:
            live[item] = after
    columns = "id BIGINT, kind TEXT, amount BIGINT, at TIMESTAMP"
    return Input("stock", columns, tuple(rows))


def inventory(count: int = 150) -> Input:
    """The same changes as Postgres and Debezium send them by default: no row before an update, only
    the key of a delete, and nothing of a long text that did not change. There are snapshots, records
    that are sent again, and truncates.
    """
    chance = random.Random(f"inventory {count}")
    live, rows = dict[object, Record](), list[Record]()
    while len(rows) < count:
        item, dice = chance.randint(1, 20), chance.random()
        before = live.get(item)
        if dice < 0.02:
            live.clear()
            rows.append({"op": "t", "before": None, "after": None})
        elif dice < 0.05:
            rows += [{"op": "r", "before": None, "after": each} for each in live.values()]
        elif dice < 0.1:
            rows += rows[-chance.randint(1, 5) :]
            live = {each["id"]: each for each in final_rows(tuple(rows))}
        elif before is not None and dice < 0.3:
            del live[item]
            rows.append({"op": "d", "before": {"id": item}, "after": None})
        else:
            after: Record = {
                "id": item,
                "kind": chance.choice(["tool", "toy", None]),
                "amount": chance.randint(0, 50),
                "note": chance.choice(["long", "longer", None]),
            }
            sent = after
            if before is not None and dice < 0.6:
                after, sent = {**after, "note": before["note"]}, {**after, "note": UNAVAILABLE}
            live[item] = after
            rows.append({"op": "c" if before is None else "u", "before": None, "after": sent})
    return Input("inventory", "id BIGINT, kind TEXT, amount BIGINT, note TEXT", tuple(rows))


def final_rows(changes: tuple[Record, ...]) -> tuple[Record, ...]:
    """What is left of a change stream by `id` at its end: what the batch query reads."""
    live = dict[object, Record]()
    for each in changes:
        before, after = each["before"], each["after"]
        if each["op"] == "t":
            live.clear()
        if isinstance(after, dict):
            held = live.get(after["id"], {})
            live[after["id"]] = {
                name: held.get(name, value) if value == UNAVAILABLE else value
                for name, value in after.items()
            }
        elif isinstance(before, dict):
            live.pop(before["id"], None)
    return tuple(live.values())


INPUTS: dict[str, Callable[..., Input]] = {
    each.__name__: each
    for each in (rides, pings, orders, payments, clicks, many, skewed, stock, inventory)
}

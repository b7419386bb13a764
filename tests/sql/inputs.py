"""The inputs of the SQL cases: small sets of rows, the same for the same name and size.

Rows are out of order by less than their table's watermark lags, so that none is late however the
input is split into epochs. Some keys and values are null.
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


def _times(rng: random.Random, count: int, step: int) -> Iterator[str]:
    """Instants that go on by up to `step` seconds, each up to 25 seconds early."""
    at = _START
    for _ in range(count):
        at += timedelta(seconds=rng.randint(0, step))
        early = at - timedelta(milliseconds=rng.randint(0, 25_000))
        yield early.isoformat()


def rides(count: int = 240) -> Input:
    """Taxi rides, about two an hour's minute: keys with nulls, decimals, floats, a flag."""
    rng = random.Random(f"rides {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "driver": rng.choice([*range(1, 9), None]),
            "kind": rng.choice(["city", "airport", "pool", None]),
            "price": rng.randint(100, 9900) / 100 if rng.random() > 0.05 else None,
            "km": rng.randint(1, 400) / 8,
            "done": rng.choice([True, True, False, None]),
        }
        for at in _times(rng, count, 60)
    )
    columns = (
        "at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT, price DECIMAL(10,2), km DOUBLE,"
        " done BOOLEAN"
    )
    return Input("rides", columns, rows)


def pings(count: int = 200) -> Input:
    """Positions of cars, in bursts with pauses between them."""
    rng = random.Random(f"pings {count}")
    at, rows = _START, list[Record]()
    for _ in range(count):
        pause = rng.choice([1, 2, 5, 10, 10, 40, 150])
        at += timedelta(seconds=pause)
        early = at - timedelta(seconds=rng.randint(0, 8))
        rows.append(
            {
                "at": early.isoformat(),
                "car": rng.choice(["a", "b", "c", None]),
                "speed": rng.randint(0, 130),
            }
        )
    return Input("pings", "at TIMESTAMP, car TEXT, speed INT", tuple(rows), "10 seconds")


def orders(count: int = 150) -> Input:
    """Orders, each with its number; some customers are unknown."""
    rng = random.Random(f"orders {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "id": number,
            "customer": rng.choice([1, 2, 3, 4, 5, 6, None]),
            "amount": rng.randint(1, 500),
        }
        for number, at in enumerate(_times(rng, count, 30))
    )
    return Input("orders", "at TIMESTAMP, id BIGINT, customer BIGINT, amount BIGINT", rows)


def payments(count: int = 150) -> Input:
    """Payments of orders: some twice, some of orders that do not exist."""
    rng = random.Random(f"payments {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "order_id": rng.choice([number, rng.randint(0, count + 20), None]),
            "customer": rng.choice([2, 3, 4, 5, 6, 7, None]),
            "method": rng.choice(["card", "cash", None]),
        }
        for number, at in enumerate(_times(rng, count, 30))
    )
    columns = "at TIMESTAMP, order_id BIGINT, customer BIGINT, method TEXT"
    return Input("payments", columns, rows)


def clicks(count: int = 160) -> Input:
    """Clicks with nested values: a list, a struct, a map, and a text that holds JSON."""
    rng = random.Random(f"clicks {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "person": rng.choice(["ann", "bob", "cem", None]),
            "tags": rng.choice([[], ["x"], ["x", "y"], ["y", None, "z"], None]),
            "device": {"os": rng.choice(["linux", "mac"]), "version": rng.randint(1, 3)},
            "props": {"page": rng.choice(["home", "cart"]), "ref": rng.choice(["a", "b"])},
            "body": json.dumps({"n": rng.randint(0, 9), "who": {"name": f"p{number % 5}"}}),
        }
        for number, at in enumerate(_times(rng, count, 40))
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
    rng = random.Random(f"skewed {count}")
    rows: tuple[Record, ...] = tuple(
        {
            "at": at,
            "key": 0 if rng.random() < 0.9 else rng.randint(1, 20),
            "value": rng.randint(1, 100),
        }
        for at in _times(rng, count, 10)
    )
    return Input("skewed", "at TIMESTAMP, key BIGINT, value BIGINT", rows)


def stock(count: int = 150) -> Input:
    """A change stream in Debezium's form: items come, change their amount and price, and go."""
    rng = random.Random(f"stock {count}")
    at, live, rows = _START, dict[int, Record](), list[Record]()
    for _ in range(count):
        at += timedelta(seconds=rng.randint(1, 20))
        item = rng.randint(1, 25)
        before = live.get(item)
        after: Record | None = {
            "id": item,
            "kind": rng.choice(["tool", "toy", None]),
            "amount": rng.randint(0, 50),
            "at": at.isoformat(),
        }
        if before is not None and rng.random() < 0.3:
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
    rng = random.Random(f"inventory {count}")
    live, rows = dict[object, Record](), list[Record]()
    while len(rows) < count:
        item, draw = rng.randint(1, 20), rng.random()
        before = live.get(item)
        if draw < 0.02:
            live.clear()
            rows.append({"op": "t", "before": None, "after": None})
        elif draw < 0.05:
            rows += [{"op": "r", "before": None, "after": each} for each in live.values()]
        elif draw < 0.1:
            rows += rows[-rng.randint(1, 5) :]
            live = {each["id"]: each for each in final_rows(tuple(rows))}
        elif before is not None and draw < 0.3:
            del live[item]
            rows.append({"op": "d", "before": {"id": item}, "after": None})
        else:
            after: Record = {
                "id": item,
                "kind": rng.choice(["tool", "toy", None]),
                "amount": rng.randint(0, 50),
                "note": rng.choice(["long", "longer", None]),
            }
            sent = after
            if before is not None and draw < 0.6:
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

"""Plans of a Kafka source, over random logs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resurgence.connectors.kafka.reading.offsets import Partition, Positions, TopicPosition
from resurgence.connectors.kafka.reading.planning import available, rotated, shares
from resurgence.graph.watermarks import merged_marks, partitioned_watermark

LOGS = st.lists(st.integers(0, 60), min_size=1, max_size=9)


def at(offsets: list[int]) -> Positions:
    return Positions(topics={"t": TopicPosition(id="id", partitions=dict(enumerate(offsets)))})


@given(LOGS, st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 4))
def test_plans_of_any_sizes_join_without_a_gap_and_no_partition_starves(
    logs: list[int], sizes: list[int], most_partitions: int
) -> None:
    here, last = at([0] * len(logs)), None
    ends = {Partition("t", number): end for number, end in enumerate(logs)}
    read = dict.fromkeys(ends, 0)
    rounds_without: dict[Partition, int] = {}
    for place in range(10_000):
        found = available(here, ends)
        if not found:
            break
        chosen = rotated(found, last)[:most_partitions]
        rows = shares({each: found[each] for each in chosen}, sizes[place % len(sizes)])
        assert 0 < sum(rows.values()) <= sizes[place % len(sizes)]
        last = [*rows][-1]
        before = here.next
        end = here.moved({each: before[each] + count for each, count in rows.items()})
        for partition, (first, after) in here.spans(end).items():
            assert first == read[partition]
            read[partition] = after
        for each in found:
            rounds_without[each] = 0 if rows.get(each) else rounds_without.get(each, 0) + 1
            assert rounds_without[each] <= len(logs)
        here = end
    assert read == ends


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 50)),
            st.sets(st.sampled_from("abc")),
        ),
        max_size=12,
    )
)
def test_watermarks_never_go_backwards_and_never_pass_a_partition_that_is_not_idle(
    epochs: list[tuple[dict[str, int], set[str]]],
) -> None:
    marks: dict[str, int] = {}
    watermark: int | None = None
    has_been_idle: set[str] = set()
    for seen, idle in epochs:
        has_been_idle |= idle
        before, earlier = watermark, marks
        marks = merged_marks(marks, seen, "abc")
        watermark = partitioned_watermark(
            watermark, {each: marks.get(each) for each in "abc"}, idle
        )
        assert all(marks[each] >= mark for each, mark in earlier.items())
        assert before is None or (watermark is not None and watermark >= before)
        if watermark is not None:
            for each in set("abc") - has_been_idle:
                assert each in marks
                assert watermark <= marks[each]

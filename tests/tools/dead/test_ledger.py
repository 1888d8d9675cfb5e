"""The ledger: wherever a redrive is cut off, the notes tell of every letter whether it was sent or is in doubt."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.structs import ConsumerRecord
from hypothesis import given
from hypothesis import strategies as st

from tools.dead.ledger import Ledger
from tools.dead.notes import Note, decode_note, encode_note, is_note
from tools.dead.settle import divide

OFFSETS = st.lists(st.integers(0, 10**12), max_size=5).map(tuple)
NOTES = st.builds(
    Note,
    st.sampled_from(["begin", "alive", "sending", "settled", "end"]),
    st.text("0123456789abcdef", min_size=1, max_size=16),
    st.integers(0, 9),
    OFFSETS,
    st.dictionaries(st.sampled_from(["f.states.low:0", "f.states.high:11"]), st.integers(0, 10**12)),
    st.lists(st.text("0123456789abcdef", min_size=1, max_size=16), max_size=2).map(tuple),
)


def ledger_of(notes: Sequence[tuple[Note, int]]) -> Ledger:
    """Read (note, partition) pairs, each at the next offset, a second apart."""
    ledger = Ledger()
    for at, (note, partition) in enumerate(notes):
        ledger.read(note, partition, at, at * 1000)
    return ledger


def run(run: str, *batches: tuple[int, ...], ended: bool = True, resumes: tuple[str, ...] = ()) -> list[Note]:
    sending = [Note("sending", run, number, offsets) for number, offsets in enumerate(batches)]
    return [Note("begin", run, resumes=resumes), *sending, *([Note("end", run)] if ended else [])]


@given(NOTES)
def test_a_note_reads_back_as_it_was_written(note: Note) -> None:
    """Through JSON."""
    assert decode_note(encode_note(note)) == note


@given(
    st.one_of(st.binary(max_size=100), st.sampled_from([b"[" * 5000, b'{"kind": "begin"}', b'{"kind": [], "run": 1}']))
)
def test_what_is_no_note_is_passed_over(value: bytes) -> None:
    """A later version's note stops nobody."""
    assert decode_note(value) is None


@given(st.one_of(st.sampled_from(["f.dead:²", "f.dead:" + "9" * 5000, ":", ""]), st.text(max_size=9)))
def test_a_note_of_a_place_that_is_none_stops_nobody(place: str) -> None:
    """ "²" is a digit and no number."""
    ledger = ledger_of([(Note("sending", "a", 0, (1,), {place: 3}), 0)])
    assert ledger.sent().keys() == {(0, 1)}


def test_letters_are_told_from_notes_by_their_header() -> None:
    """A note is never listed nor sent."""
    note = ConsumerRecord("f.dead", 0, 0, 0, 0, None, b"{}", None, 0, 0, (("fleet_dead-note", b"1"),))
    letter = ConsumerRecord("f.dead", 0, 0, 0, 0, None, b"{}", None, 0, 0, (("fleet_dead-reason", b"note"),))
    assert is_note(note) and not is_note(letter)


def test_what_an_ended_run_sent_is_sent() -> None:
    """Nothing is in doubt."""
    ledger = ledger_of([(note, 0) for note in run("a", (1, 2), (5,))])
    assert ledger.sent().keys() == {(0, 1), (0, 2), (0, 5)}
    assert not ledger.perhaps() and not ledger.open_before("b")


@given(st.integers(0, 4))
def test_only_the_last_batch_of_a_run_that_was_cut_off_is_in_doubt(noted: int) -> None:
    """A note for the next batch says that the one before was acknowledged."""
    notes = run("a", (1,), (2,), (3,), (4,), ended=False)[: noted + 1]
    ledger = ledger_of([(note, 0) for note in notes])
    assert ledger.perhaps() == ({(0, noted)} if noted else set())
    assert ledger.sent().keys() == {(0, offset) for offset in range(1, noted + 1)}
    assert [one.id for one in ledger.open_before("b")] == ["a"]


def test_a_settled_batch_gives_back_what_was_not_sent() -> None:
    """Those letters wait again, the others are sent."""
    notes = [*run("a", (1, 2, 3), ended=False), Note("settled", "a", 0, (2,)), Note("end", "a")]
    ledger = ledger_of([(note, 0) for note in notes])
    assert ledger.sent().keys() == {(0, 1), (0, 3)} and not ledger.perhaps()


@given(st.permutations([0, 1, 2, 3]))
def test_notes_of_different_partitions_may_come_in_any_order(order: list[int]) -> None:
    """Batches are numbered, so only one of them can be the last."""
    ledger = Ledger()
    ledger.read(Note("begin", "a"), 0, 0, 0)
    for number in order:
        ledger.read(Note("sending", "a", number, (7,)), number, 0, 0)
    assert ledger.perhaps() == {(3, 7)}


def test_of_two_runs_that_begin_at_once_the_first_goes_on() -> None:
    """The log puts them in an order, and both see the same one."""
    notes = [(note, 0) for note in (*run("a", ended=False), *run("b", ended=False))]
    assert [one.id for one in ledger_of(notes).open_before("a")] == []
    assert [one.id for one in ledger_of(notes).open_before("b")] == ["a"]


def test_a_resumed_run_knows_what_all_runs_before_it_sent() -> None:
    """With --again too, what was sent since the person first asked is not sent once more."""
    notes = [
        *run("old", (9,)),
        *run("a", (1,)),
        *run("b", (2,), resumes=("a",)),
        *run("c", resumes=("b",), ended=False),
    ]
    ledger = ledger_of([(note, 0) for note in notes])
    assert ledger.chain("c") == {"a", "b"}
    assert ledger.sent_by(ledger.chain("c")).keys() == {(0, 1), (0, 2)}


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_settling_divides_a_batch_by_what_arrived(offsets: set[int], arrived: set[int]) -> None:
    """Each letter is on one side; letters of other batches count for nothing."""
    batch = ledger_of([(Note("sending", "a", 0, tuple(offsets)), 4)]).runs["a"].batches[0]
    settled = divide(batch, {f"4:{offset}" for offset in arrived})
    assert set(settled.sent) == {(4, offset) for offset in offsets & arrived}
    assert set(settled.unsent) == {(4, offset) for offset in offsets - arrived}

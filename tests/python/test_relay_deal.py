"""The books of a loop over a DataLoader's workers: who gets what, and where a loop goes on."""

from __future__ import annotations

import itertools

import pytest

import headrace as hr
from headrace.loader.relay.deal import Deal, Start, place_of


def test_batches_go_round_and_no_worker_gets_more_than_one_that_it_has_not_asked_for() -> None:
    deal = Deal(3, 0, "s0")
    given = []
    while deal.can_deal:
        given.append(deal.turn)
        deal.note_dealt(f"s{len(given)}")
    assert given == [0, 1, 2]
    deal.credits[1] += 1
    assert not deal.can_deal, "it is worker 0's turn, which has one already"
    deal.credits[0] += 1
    assert deal.can_deal


def test_the_state_is_that_of_what_was_delivered() -> None:
    deal = Deal(2, 5, "s5")
    assert (deal.state, deal.is_ahead, deal.turn) == ("s5", False, 1)
    for number in (6, 7, 8):
        deal.note_dealt(f"s{number}")
    deal.note_delivered()
    assert (deal.state, deal.is_ahead) == ("s6", True)
    deal.note_delivered()
    deal.note_delivered()
    assert (deal.state, deal.is_ahead) == ("s8", False)


def worker_starts(workers: int, delivered: int, first: int = 0) -> list[Start]:
    """What each worker says after so many deliveries, counted as the workers do."""
    starts = [Start(w, f"s{first}") for w in range(workers)]
    for number in range(first, delivered):
        starts[number % workers] = Start(number + workers, f"s{number + 1}")
    return starts


@pytest.mark.parametrize(("workers", "delivered"), list(itertools.product((1, 2, 3, 5), range(12))))
def test_workers_states_together_say_where_a_loop_goes_on(workers: int, delivered: int) -> None:
    assert place_of(worker_starts(workers, delivered)) == Start(delivered, f"s{delivered}")


def test_states_of_different_moments_are_refused() -> None:
    starts = worker_starts(3, 7)
    starts[1] = worker_starts(3, 4)[1]
    with pytest.raises(hr.InvalidArgumentError, match="not of one moment"):
        place_of(starts)
    with pytest.raises(hr.InvalidArgumentError, match="not of one moment"):
        place_of([Start(0, "s0"), Start(2, "s0")])

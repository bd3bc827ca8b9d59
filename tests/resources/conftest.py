"""Guards of the ledger, each of which can be taken out: what is left has to be caught by the laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mat.resources import ledger
from mat.resources.ledger import Account, ContractNode, Ledger
from mat.resources.work import Work

Without = Callable[[pytest.MonkeyPatch], None]


def _calls_in_flight_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Account, "free", property(lambda self: self.budget - self.own - self.out))


def _settles_as_often_as_it_is_told(patch: pytest.MonkeyPatch) -> None:
    once = Ledger.settle

    def settle(self: Ledger, key: str, actual: Any, *unknown: Any, **more: Any) -> Any:
        hold = self.holds.get(key)
        facts = once(self, key, actual, *unknown, **more)
        if hold is not None:
            self.holds[key] = hold
        return facts

    patch.setattr(Ledger, "settle", settle)


def _gives_back_what_it_has_lent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Account, "committed", property(lambda self: self.own + self.held))


def _gives_back_what_calls_in_flight_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Account, "committed", property(lambda self: self.own + self.out))


def _gives_nothing_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_rebalance_ended", lambda self, nodes: {})


def _allocates_what_is_not_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_unaffordable", lambda self, account, wanted: "")


def _checks_each_giver_alone(patch: pytest.MonkeyPatch) -> None:
    together = Ledger._unavailable

    def alone(self: Ledger, node: ContractNode, allocations: Any, now_ms: int) -> str:
        problems = (
            together(
                self,
                node,
                {key: found if key == giver else dict.fromkeys(found, 0) for key, found in allocations.items()},
                now_ms,
            )
            for giver in allocations
        )
        return next(filter(None, problems), "")

    patch.setattr(Ledger, "_unavailable", alone)


def _takes_budgets_from_outside(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "_check_allocations", lambda node, allocations: None)


def _lends_its_reserve(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Account, "lendable", property(lambda self: self.free))


def _forgets_lost_settlements(patch: pytest.MonkeyPatch) -> None:
    close = Ledger.close

    def forgetful(self: Ledger) -> None:
        self.holds.clear()
        close(self)

    patch.setattr(Ledger, "close", forgetful)


def _keeps_overruns_from_those_above(patch: pytest.MonkeyPatch) -> None:
    balanced = Ledger._rebalance
    patch.setattr(Ledger, "_rebalance", lambda self, account: [] if account.free < 0 else balanced(self, account))


def _does_not_end_what_overran(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_check_limits", lambda self, node, changed, call="": None)


def _lets_contracts_consume_what_they_have_allocated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Account, "overrun", property(lambda self: max(0, self.used - self.budget)))


def _does_not_ask_who_must_cover_calls_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_check_those_above", lambda self, node: None)


def _ends_nothing_below(patch: pytest.MonkeyPatch) -> None:
    end = Ledger._end

    def alone(self: Ledger, node: ContractNode, state: Any, cause: str = "", **facts: Any) -> None:
        children, node.children = node.children, []
        end(self, node, state, cause, **facts)
        node.children = children

    patch.setattr(Ledger, "_end", alone)


def _lets_calls_start_after_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ContractNode, "live", property(lambda self: self.state != "drafted"))


def _ends_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "transition", lambda state, to, contract: to)


def _has_all_the_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "expire", lambda self, node, now_ms: None)


def _limits_nothing_below(patch: pytest.MonkeyPatch) -> None:
    activate = Ledger.activate

    def apart(self: Ledger, node: ContractNode, *arguments: Any, **options: Any) -> str:
        why = activate(self, node, *arguments, **options)
        node.tracked = dict(node.accounts)
        return why

    patch.setattr(Ledger, "activate", apart)


def _counts_no_subcontracts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "_nearest_accounts", lambda node, resource: [])


def _tells_nobody_above_what_was_used(patch: pytest.MonkeyPatch) -> None:
    def used(self: Ledger, account: Account, more: int) -> None:
        account.used += more

    patch.setattr(Ledger, "_count_use", used)


def _knows_no_skills(patch: pytest.MonkeyPatch) -> None:
    needs = Work.needs

    def any_skill(self: Work, kind: Any, port: str, arguments: Any) -> Any:
        found, _ = needs(self, kind, port, arguments)
        return found, ""

    patch.setattr(Work, "needs", any_skill)


_GUARDS: dict[str, Without] = {
    name.strip("_").replace("_", " "): without
    for name, without in list(globals().items())
    if getattr(without, "__module__", "") == __name__ and name.startswith("_")
}


@pytest.fixture
def take_out(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Take a guard out for a test, by what a ledger without it does."""
    return lambda name: _GUARDS[name](monkeypatch)

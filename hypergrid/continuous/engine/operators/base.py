"""What all operators have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hypergrid.continuous.engine.batch import Elements
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.row_store import HeldColumns
from hypergrid.continuous.engine.state import Stateful
from hypergrid.continuous.expressions import Attributes


@dataclass(frozen=True)
class Needs:
    """What the operators above need of one."""

    columns: frozenset[int]
    """Positions of attributes that are read."""
    order: bool = False
    """Whether the order of rows is read."""
    slots: bool = False
    """Whether rows are referred to by slot."""
    leaving: bool = True
    """Whether rows that leave are read also where no equal row enters at the same instant."""
    merged: bool = True
    """Whether rows that enter and rows that leave are read in one order of time."""
    compared: frozenset[int] | None = None
    """Attributes in which rows above are equal if they are the same row, where `leaving` is false; None: any."""

    def __or__(self, other: "Needs") -> "Needs":
        both = [each for each in (self.compared, other.compared) if each is not None]
        return Needs(
            self.columns | other.columns,
            self.order or other.order,
            self.slots or other.slots,
            self.leaving or other.leaving,
            self.merged or other.merged,
            frozenset.intersection(*both) if both else None,
        )


class StepOperator(Stateful, ABC):
    """Operator that takes the elements of its inputs round by round.

    A round holds all elements below a heartbeat, so that its instants are complete. The changes that an operator
    returns lead from one bag to the next through bags: no row is removed before it is there. Where `Needs.merged` is
    false, those that enter may be apart (`Elements.entering`); of an instant they come before those that leave. Where
    `Needs.leaving` is false, rows that leave may be left out if none that enters at the same instant is equal to them
    in `Needs.compared`.
    """

    STATE: ClassVar[tuple[str, ...]] = ("first_tau",)
    HOLDS_ROWS: ClassVar[bool] = True
    """Whether rows are held from one round to the next, those that wait for their round apart."""

    def __init__(self, attributes: Attributes, evaluator: ExpressionEvaluator) -> None:
        self.attributes = attributes
        self.evaluator = evaluator
        self.store: HeldColumns | None = None
        """Where the slots of the elements lead to; None if they have none."""
        self.unique: frozenset[int] | None = None
        """Attributes by which all rows differ at all times, and whose changes are net; None if there are none."""
        self.is_queue = False
        """Whether rows leave in the order in which they enter."""
        self.is_growing = False
        """Whether rows never leave."""
        self.order_width = 0
        """Columns of the order of rows that elements carry, 0 if they carry none."""
        self.first_tau: int | None = None
        """First instant of any source below; None before it."""

    @abstractmethod
    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes at all instants before a heartbeat [ns]."""

"""What a join holds: records of rows, tables of their keys, and the words by which the loop finds its way."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import EMPTY, Integers, null_bits
from hypergrid.continuous.engine.kernels import join as kernel
from hypergrid.continuous.engine.kernels.grid import NO_CELL
from hypergrid.continuous.engine.state import State, Stateful
from hypergrid.continuous.join_plan import JoinPlan
from hypergrid.core.errors import InvalidQuery

HASHED_WORDS: Final = 512
"""Hashed words of a table at first."""
MANY_WORDS: Final = 4096
"""Hashed words from which on a table that is full gets twice the room."""


class JoinEntry(NamedTuple):
    """Where rows of an input are entered into a table."""

    owner: int
    """Number of the input."""
    table: int
    keys: tuple[int, ...]
    """Numbers of the input's keys; cells of near points follow the keys."""
    of_index: int | None
    """Index of the plan that has these keys; None if the input has none."""
    head: int
    """Word of the index's heads in a cell, 0 without an index."""


def list_entries(plan: JoinPlan) -> list[JoinEntry]:
    """List the entries of all inputs, in order of inputs.

    A table is that of a class of equal values, or of an index of several keys or of a cell of near points.
    """
    entries: dict[tuple[int, int], JoinEntry] = {}
    of_classes: dict[int, int] = {}
    heads: list[int] = []
    for number, (owner, keys) in enumerate(plan.indexes):
        classes = plan.inputs[owner].classes
        of_class = classes[keys[0]] if len(keys) == 1 and keys[0] < len(classes) else None
        table = len(heads) if of_class is None else of_classes.setdefault(of_class, len(heads))
        if table == len(heads):
            heads.append(kernel.HEADS)
            for other, part in enumerate(plan.inputs):
                if of_class in part.classes:
                    entries[other, table] = JoinEntry(other, table, (part.classes.index(of_class),), None, 0)
        entries[owner, table] = JoinEntry(owner, table, keys, number, heads[table])
        heads[table] += 1
    return [entries[key] for key in sorted(entries)]


class JoinStore(Stateful):
    """Records, tables and words of a join.

    Parameters
    ----------
    passing
        For each input whether its rows are not kept.
    compared
        For each input the number and the class of the key by which combinations are compared, -1 without one.
    is_leaving_read
        Whether combinations that leave are read also where no equal row enters at the same instant.
    """

    def __init__(
        self, plan: JoinPlan, passing: Sequence[bool], compared: Sequence[tuple[int, int]], *, is_leaving_read: bool
    ) -> None:
        self._plan = plan
        self._listed = list_entries(plan)
        self._capacities = [1] * len(plan.inputs)
        self.arrays = kernel.JoinArrays(np.zeros(0, np.int64), np.zeros(0, np.int64), self._lay_out())
        self.arrays.words[kernel.IS_LEAVING_READ] = is_leaving_read
        self._describe_inputs(passing, compared)
        self._describe_entries()
        self._describe_steps()
        self._move_records(self._capacities)
        for entry in self._listed:
            words = self._tables[entry.table]
            words[kernel.SPAN] = words[kernel.USED] = max(words[kernel.SPAN], entry.head + 1)
        self._resize_tables([HASHED_WORDS] * len(self._tables))

    def _lay_out(self) -> Integers:
        """Return words, of which inputs, entries, steps, runs and tables are views; lists follow."""
        count, steps = len(self._plan.inputs), sum(map(len, self._plan.steps))
        sizes = (
            (count, kernel.INPUT_WORDS),
            (len(self._listed), kernel.ENTRY_WORDS),
            (steps, kernel.STEP_WORDS),
            (2 * count, kernel.RUN_WORDS),
            (1 + max(entry.table for entry in self._listed), kernel.TABLE_WORDS),
            (kernel.COMPARED_ELEMENTS, 2),
        )
        lists = [part.width for part in self._plan.inputs] + [len(entry.keys) for entry in self._listed]
        lists += [2 * len(step.sources) for each in self._plan.steps for step in each]
        *starts, self._listed_words = itertools.accumulate(
            (rows * width for rows, width in sizes), initial=int(kernel.FIRST_WORD)
        )
        words = np.zeros(self._listed_words + sum(lists), np.int64)
        self._inputs, self._entries, self._steps, self.runs, self._tables, _ = (
            words[start : start + rows * width].reshape(rows, width)
            for start, (rows, width) in zip(starts, sizes, strict=True)
        )
        self._first_input, self._first_entry, self._first_step, first_run, self._first_table, entered = starts
        words[kernel.FIRST_RUN], words[kernel.STOP_RUN], words[kernel.ENTERED] = first_run, self._first_table, entered
        self.runs[:, kernel.OWNER] = [self._position_of_input(number // 2) for number in range(2 * count)]
        return words

    def _position_of_input(self, number: int) -> int:
        return self._first_input + kernel.INPUT_WORDS * number

    def _position_of_entry(self, number: int) -> int:
        return self._first_entry + kernel.ENTRY_WORDS * number

    def _append(self, values: Iterable[int]) -> int:
        """Write a list behind the others; returns its position."""
        listed, start = list(values), self._listed_words
        self.arrays.words[start : start + len(listed)] = listed
        self._listed_words += len(listed)
        return start

    def _describe_inputs(self, passing: Sequence[bool], compared: Sequence[tuple[int, int]]) -> None:
        first_step = self._first_step
        for number, (part, words) in enumerate(zip(self._plan.inputs, self._inputs, strict=True)):
            own = [each for each, entry in enumerate(self._listed) if entry.owner == number]
            last_step = first_step + kernel.STEP_WORDS * (len(self._plan.steps[number]) - 1)
            words[kernel.NUMBER], words[kernel.KEYS], words[kernel.IS_PASSING] = number, part.width, passing[number]
            words[kernel.STRIDE] = self._links_of(number) + len(own)
            words[kernel.NULLS] = self._append(
                [*(null_bits(key.kind) for key in part.keys), *(NO_CELL for _ in part.points)]
            )
            words[kernel.FIRST_ENTRY] = self._position_of_entry(own[0])
            words[kernel.STOP_ENTRY] = words[kernel.FIRST_ENTRY] + kernel.ENTRY_WORDS * len(own)
            words[kernel.FIRST_STEP], words[kernel.LAST_STEP] = first_step, last_step
            words[[kernel.COMPARED_KEY, kernel.COMPARED_CLASS]] = compared[number]
            first_step = last_step + kernel.STEP_WORDS

    def _indexes_of(self, number: int) -> list[int]:
        return [index for index, (owner, _) in enumerate(self._plan.indexes) if owner == number]

    def _links_of(self, number: int) -> int:
        """Return how many words of a record are keys and links."""
        return self._plan.inputs[number].width + 2 * len(self._indexes_of(number))

    def _link_of(self, index: int) -> int:
        """Return the first link of an index."""
        owner = self._plan.indexes[index][0]
        return self._plan.inputs[owner].width + 2 * (index - self._indexes_of(owner)[0])

    def _describe_entries(self) -> None:
        order = [0] * len(self._plan.inputs)
        for entry, words in zip(self._listed, self._entries, strict=True):
            words[kernel.OF_RECORD] = self._links_of(entry.owner) + order[entry.owner]
            order[entry.owner] += 1
            words[kernel.OF_KEY] = entry.keys[0] if len(entry.keys) == 1 else 0
            words[kernel.LINK] = 0 if entry.of_index is None else self._link_of(entry.of_index)
            words[kernel.HEAD], words[kernel.PARTS] = entry.head, len(entry.keys)
            words[kernel.FIRST_PART] = self._append(entry.keys)
            words[kernel.TABLE] = self._first_table + kernel.TABLE_WORDS * entry.table

    def _describe_steps(self) -> None:
        of_indexes = {entry.of_index: number for number, entry in enumerate(self._listed)}
        ordered = [step for each in self._plan.steps for step in each]
        for step, words in zip(ordered, self._steps, strict=True):
            probed = of_indexes[step.index]
            words[kernel.PROBED] = self._position_of_input(step.probed)
            words[kernel.PROBED_ENTRY] = self._position_of_entry(probed)
            words[kernel.COUNT] = -len(step.sources) if step.link is not None else len(step.sources)
            positions = [(self._position_of_input(owner), key) for owner, key in step.sources]
            words[kernel.SOURCES] = self._append(word for source in positions for word in source)
            if words[kernel.COUNT] == 1:
                [(owner, _)] = step.sources
                [entry] = [
                    number
                    for number, each in enumerate(self._listed)
                    if (each.owner, each.table) == (owner, self._listed[probed].table)
                ]
                words[kernel.BOUND], words[kernel.CELL] = positions[0][0], self._entries[entry, kernel.OF_RECORD]

    def _move_records(self, capacities: Sequence[int]) -> None:
        """Make room for records, and keep those that there are."""
        old = self._records() if len(self.arrays.records) else []
        sizes = self._inputs[:, kernel.STRIDE] * np.array(capacities, np.int64)
        self._inputs[:, kernel.RECORD] = np.cumsum(sizes) - sizes
        self._capacities = list(capacities)
        self.arrays = self.arrays._replace(records=np.zeros(int(sizes.sum()), np.int64))
        for part, held in zip(self._records(), old, strict=False):
            part[: len(held)] = held

    def _records(self) -> list[Integers]:
        """Return the records of each input, shape (capacity, words)."""
        return [
            self.arrays.records[start : start + stride * capacity].reshape(capacity, stride)
            for (start, stride), capacity in zip(
                self._inputs[:, [kernel.RECORD, kernel.STRIDE]].tolist(), self._capacities, strict=True
            )
        ]

    def make_room(self, capacities: Sequence[int]) -> None:
        """Make room for as many records of each input."""
        if capacities != self._capacities:
            self._move_records(capacities)

    def _resize_tables(self, sizes: Sequence[int]) -> None:
        """Make room for hashed words, a power of two for each table, and half as many cells; what is held is kept."""
        old = [self._view_table(table) for table in range(len(sizes))] if len(self.arrays.tables) else []
        room = self._tables[:, kernel.SPAN] * (np.array(sizes) // 2 + 1)
        starts = np.cumsum(np.array(sizes) + room) - room
        self.arrays = self.arrays._replace(tables=np.zeros(int(starts[-1] + room[-1]), np.int64))
        for entry, words in zip(self._listed, self._entries, strict=True):
            start, size = int(starts[entry.table]), sizes[entry.table]
            words[kernel.HASHED], words[kernel.MASK], words[kernel.START] = start - size, size - 1, start
        for table, (hashed, cells) in enumerate(old):
            new_hashed, new_cells = self._view_table(table)
            new_cells[:] = cells
            if len(hashed) == len(new_hashed):
                new_hashed[:] = hashed
            else:
                self._tables[table, kernel.FILLED] = -1
                self._enter(self._entry_of(table), -1, EMPTY)

    def _entry_of(self, table: int) -> int:
        """Return an entry of a table."""
        return next(number for number, entry in enumerate(self._listed) if entry.table == table)

    def _view_table(self, table: int) -> tuple[Integers, Integers]:
        """Return the hashed words of a table, and its cells that were ever used, shape (cells, words)."""
        hashed, start = self._entries[self._entry_of(table), [kernel.HASHED, kernel.START]].tolist()
        used, span = self._tables[table, [kernel.USED, kernel.SPAN]].tolist()
        return self.arrays.tables[hashed:start], self.arrays.tables[start : start + used].reshape(-1, span)

    def _enter(self, number: int, link: int, heads: Integers) -> None:
        """Enter rows into the cells of an entry (`refill_entry`), with room for their keys."""
        owner, entry = self._position_of_input(self._listed[number].owner), self._position_of_entry(number)
        done = 0
        while (done := kernel.refill_entry(self.arrays, owner, entry, link, heads, done)) < len(heads):
            self.grow_table()

    def grow_table(self) -> None:
        """Give the table that is full twice the room, or four times while that is small."""
        full = (int(self.arrays.words[kernel.FULL]) - self._first_table) // kernel.TABLE_WORDS
        sizes = [0] * len(self._tables)
        for entry, words in zip(self._listed, self._entries, strict=True):
            sizes[entry.table] = int(words[kernel.MASK] + 1)
        sizes[full] *= 2 if sizes[full] >= MANY_WORDS else 4
        self._resize_tables(sizes)

    def _list_chains(self) -> list[Integers]:
        """Return key, or hash of the keys, and newest slot + 1 of the chains of each index, shape (chains, 2)."""
        of_indexes = {entry.of_index: entry for entry in self._listed}
        listed = []
        for index in range(len(self._plan.indexes)):
            cells = self._view_table(of_indexes[index].table)[1][:, [0, of_indexes[index].head]]
            listed.append(cells[cells[:, 1] > 0])
        return listed

    def save(self) -> State:
        """Return records and chains; cells are not saved, as tables are filled again.

        Arrays have the form of states of earlier programs.
        """
        links = [self._links_of(number) for number in range(len(self._plan.inputs))]
        records = [part[:, :stop].reshape(-1) for part, stop in zip(self._records(), links, strict=True)]
        inputs = [
            (0, stop, part.width, 0, len(self._indexes_of(number)), 0)
            for number, (stop, part) in enumerate(zip(links, self._plan.inputs, strict=True))
        ]
        indexes = [
            (owner, 0, 0, 0, self._link_of(index), len(keys), 0)
            for index, (owner, keys) in enumerate(self._plan.indexes)
        ]
        return {
            "_capacities": self._capacities,
            "records": np.concatenate(records),
            "inputs": np.array(inputs),
            "indexes": np.array(indexes),
            "held": self._list_chains(),
        }

    def load(self, state: State) -> None:
        """Take a state.

        Raises
        ------
        InvalidQuery
            It is that of another plan.
        """
        own = self.save()
        if _form_of(state) != _form_of(own):
            raise InvalidQuery("the state of a join is that of another program; evaluate the query again")
        self._move_records(state["_capacities"])
        done = 0
        for number, part in enumerate(self._records()):
            links = self._links_of(number)
            part[:, :links] = state["records"][done : done + links * len(part)].reshape(len(part), links)
            done += links * len(part)
        for number, entry in enumerate(self._listed):
            if entry.of_index is not None:
                heads = np.ascontiguousarray(state["held"][entry.of_index][:, 1]) - 1
                self._enter(number, self._link_of(entry.of_index), heads)
        for number, entry in enumerate(self._listed):
            if entry.of_index is None:
                # Each input has an index, and all of its rows are there.
                other = next(
                    each for each, known in enumerate(self._listed) if known.owner == entry.owner and known.head
                )
                held = self._records()[entry.owner][:, self._entries[other, kernel.OF_RECORD]] != kernel.NOWHERE
                self._enter(number, -1, np.flatnonzero(held))


def _form_of(state: State) -> tuple[list[list[int]], list[list[int]]]:
    """Return what the plan of a join decides of its arrays: words of records, keys and indexes; inputs, links, keys."""
    return state["inputs"][:, [1, 2, 4]].tolist(), state["indexes"][:, [0, 4, 5]].tolist()

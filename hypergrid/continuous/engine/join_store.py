"""What a join holds: records of rows, tables of their keys, and the words by which the loop finds its way."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import Integers, null_bits
from hypergrid.continuous.engine.kernels import join as kernel
from hypergrid.continuous.engine.kernels.grid import NO_CELL
from hypergrid.continuous.engine.state import State, Stateful
from hypergrid.continuous.join_plan import JoinPlan
from hypergrid.core.errors import InvalidQuery

CELLS: Final = 64
"""Cells of a table at first."""


class JoinEntry(NamedTuple):
    """Where rows of an input are entered into a table."""

    owner: int
    table: int
    keys: tuple[int, ...]
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
    """

    def __init__(self, plan: JoinPlan, passing: Sequence[bool], compared: Sequence[tuple[int, int]]) -> None:
        self._plan = plan
        self._listed = list_entries(plan)
        self._capacities = [1] * len(plan.inputs)
        self._masks = np.full(1 + max(entry.table for entry in self._listed), CELLS - 1)
        self._spans = np.full(len(self._masks), kernel.HEADS)
        for entry in self._listed:
            self._spans[entry.table] = max(self._spans[entry.table], entry.head + 1)
        words = self._lay_out()
        self.arrays = kernel.JoinArrays(np.zeros(0, np.int64), np.zeros(0, np.int64), words)
        self._describe_inputs(passing, compared)
        self._describe_entries()
        self._describe_steps()
        self._move_records(self._capacities)
        self._make_tables()

    def _lay_out(self) -> Integers:
        """Return words, zero but for where runs and scratch are, with views of them."""
        count, steps = len(self._plan.inputs), sum(map(len, self._plan.steps))
        sizes = (
            (count, kernel.INPUT_WORDS),
            (len(self._listed), kernel.ENTRY_WORDS),
            (steps, kernel.STEP_WORDS),
            (2 * count, kernel.RUN_WORDS),
            (len(self._masks), 1),
            (kernel.COMPARED_ELEMENTS, 2),
        )
        lists = [part.width for part in self._plan.inputs] + [len(entry.keys) for entry in self._listed]
        lists += [2 * len(step.sources) for each in self._plan.steps for step in each]
        self._starts = kernel.FIRST_WORD + np.cumsum([0, *(rows * width for rows, width in sizes)])
        words = np.zeros(int(self._starts[-1]) + sum(lists), np.int64)
        self._inputs, self._entries, self._steps, self.runs, self._filled, _ = (
            words[start : start + rows * width].reshape(rows, width)
            for start, (rows, width) in zip(self._starts, sizes, strict=False)
        )
        self._listed_words = int(self._starts[-1])
        words[kernel.FIRST_RUN], words[kernel.STOP_RUN] = self._starts[3], self._starts[4]
        words[kernel.ENTERED] = self._starts[5]
        self.runs[:, kernel.OWNER] = [self._position_of_input(number // 2) for number in range(2 * count)]
        return words

    def _position_of_input(self, number: int) -> int:
        return int(self._starts[0]) + kernel.INPUT_WORDS * number

    def _position_of_entry(self, number: int) -> int:
        return int(self._starts[1]) + kernel.ENTRY_WORDS * number

    def _append(self, values: Iterable[int]) -> int:
        """Write a list behind the others; returns its position."""
        listed, start = list(values), self._listed_words
        self.arrays.words[start : start + len(listed)] = listed
        self._listed_words += len(listed)
        return start

    def _describe_inputs(self, passing: Sequence[bool], compared: Sequence[tuple[int, int]]) -> None:
        first_step = int(self._starts[2])
        for number, (part, words) in enumerate(zip(self._plan.inputs, self._inputs, strict=True)):
            own = [each for each, entry in enumerate(self._listed) if entry.owner == number]
            last_step = first_step + kernel.STEP_WORDS * (len(self._plan.steps[number]) - 1)
            words[kernel.NUMBER], words[kernel.KEYS], words[kernel.IS_PASSING] = number, part.width, passing[number]
            words[kernel.STRIDE] = self._links_of(number) + len(own)
            words[kernel.NULLS] = self._append(
                [*(null_bits(key.kind) for key in part.keys), *(NO_CELL for _ in part.points)]
            )
            words[kernel.FIRST_ENTRY] = self._position_of_entry(own[0] if own else 0)
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
            words[kernel.FILLED] = self._starts[4] + entry.table

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
                words[kernel.BOUND], words[kernel.KEY] = positions[0][0], self._entries[entry, kernel.OF_RECORD]

    def _move_records(self, capacities: Sequence[int]) -> None:
        """Make room for records, and keep those that there are."""
        old = [part.copy() for part in self._records()] if len(self.arrays.records) else []
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

    def _make_tables(self) -> None:
        """Make new tables of the sizes of the masks, without rows."""
        sizes = (self._masks + 1) * self._spans
        # The first cell is that of keys without rows.
        starts = self._spans.max() + np.cumsum(sizes) - sizes
        self.arrays = self.arrays._replace(tables=np.zeros(int(starts[-1] + sizes[-1]), np.int64))
        self._filled[:] = 0
        of_entries = [entry.table for entry in self._listed]
        self._entries[:, kernel.START] = starts[of_entries]
        self._entries[:, kernel.MASK], self._entries[:, kernel.SPAN] = self._masks[of_entries], self._spans[of_entries]

    def _cells_of(self, entry: int) -> Integers:
        """Return the cells of an entry's table, shape (cells, words)."""
        start, mask, span = self._entries[entry, [kernel.START, kernel.MASK, kernel.SPAN]].tolist()
        return self.arrays.tables[start : start + (mask + 1) * span].reshape(-1, span)

    def _list_chains(self) -> list[Integers]:
        """Return key, or hash of the keys, and newest slot + 1 of the chains of each index, shape (chains, 2)."""
        of_indexes = {entry.of_index: number for number, entry in enumerate(self._listed)}
        listed = []
        for index in range(len(self._plan.indexes)):
            entry = of_indexes[index]
            cells = self._cells_of(entry)[:, [0, self._listed[entry].head]]
            listed.append(cells[cells[:, 1] > 0])
        return listed

    def _fill_tables(self, chains: Sequence[Integers], keys: Sequence[int]) -> None:
        """Enter all rows into new tables.

        Parameters
        ----------
        chains
            Chains of each index, the newest slots + 1 in the last column.
        keys
            Keys of each table, at most: it is a quarter full of them, or less.
        """
        for table, count in enumerate(keys):
            while 4 * (count + 1) > self._masks[table] + 1:
                self._masks[table] = 2 * self._masks[table] + 1
        self._make_tables()
        for number, entry in enumerate(self._listed):
            indexes = self._indexes_of(entry.owner)
            if indexes:
                # All rows of an input are in each of its indexes.
                index = indexes[0] if entry.of_index is None else entry.of_index
                owner = self._position_of_input(entry.owner)
                heads = np.ascontiguousarray(chains[index][:, -1]) - 1
                kernel.refill_entry(self.arrays, owner, self._position_of_entry(number), self._link_of(index), heads)

    def grow_tables(self) -> None:
        """Make all tables at most a quarter full."""
        keys = [0] * len(self._masks)
        for number, entry in enumerate(self._listed):
            keys[entry.table] = int((self._cells_of(number)[:, kernel.CELL_ROWS] > 0).sum())
        self._fill_tables(self._list_chains(), keys)

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
        # Rows may have keys by which no index finds them: these are not more than records.
        keys = [0] * len(self._masks)
        for entry in self._listed:
            keys[entry.table] += self._capacities[entry.owner]
        self._fill_tables(state["held"], keys)


def _form_of(state: State) -> tuple[list[list[int]], list[list[int]]]:
    """Return what the plan of a join decides of its arrays: words of records, keys and indexes; inputs, links, keys."""
    return state["inputs"][:, [1, 2, 4]].tolist(), state["indexes"][:, [0, 4, 5]].tolist()

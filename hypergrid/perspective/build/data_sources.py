"""Where questions find their data: an archive at the snapshot that each names, and arrays in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.perspective.sources.array_source import ArraySource
from hypergrid.perspective.build.plan_memo import PlanMemo
from hypergrid.perspective.spec.query_spec import QuerySpec, Step
from hypergrid.archive import Archive
from hypergrid.core.times import parse_instant

ARRAY: Final = "array:"
"""What the snapshot of a question about an array begins with; its content token follows."""


@dataclass(frozen=True, eq=False)
class SourceLookup:
    """Finds the source of a question; merged queries find those of all."""

    archive: Archive | None = None
    arrays: Mapping[str, ArraySource] = field(default_factory=dict)
    """Arrays by the snapshot that their questions name."""
    known: PlanMemo | None = field(default=None, compare=False)
    """What queries that are built together share."""

    def __call__(self, question: QuerySpec) -> ArchiveSource | ArraySource:
        """Return the source of a question.

        Raises
        ------
        NotFound
            There is no such array, snapshot or variable.
        InvalidQuery
            No series is selected, or flags or an instant of arrival are asked of an array.
        """
        if question.snapshot is not None and question.snapshot.startswith(ARRAY):
            if question.snapshot not in self.arrays:
                raise NotFound.among(kind="array", given=question.snapshot, existing=self.arrays)
            source = self.arrays[question.snapshot]
            if question.variable != source.variable.name:
                raise NotFound.among(kind="variable", given=question.variable, existing=[source.variable.name])
            if question.accept_flags != ACCEPTED_BY_DEFAULT:
                message = (
                    f"the values of the array {source.variable.name!r} have no flags, so that accept_flags "
                    f"{', '.join(map(str, question.accept_flags))} cannot be asked of it; leave it out, and put NaN "
                    "where a value is not to be used"
                )
                raise InvalidQuery(message)
            if question.as_of is not None:
                message = (
                    f"the values of the array {source.variable.name!r} have no arrival, so that as_of "
                    f"{question.as_of!r} cannot be asked of it; leave it out, or query an archive"
                )
                raise InvalidQuery(message)
            return source.select_series(question.select)
        if self.archive is None:
            message = f"variable {question.variable!r} is to come from an archive, and this query has none; open one"
            raise NotFound(message)
        archive = self.archive
        if question.snapshot not in (None, archive.snapshot):
            archive = Archive.open(archive.path, snapshot=question.snapshot)
        archive = archive.as_of(None if question.as_of is None else parse_instant(question.as_of))
        return ArchiveSource(archive, archive.variable(question.variable), question.select)

    def join(self, other: "SourceLookup") -> "SourceLookup":
        """Return the sources of both.

        Raises
        ------
        InvalidQuery
            They are of two archives.
        """
        if self.archive and other.archive and self.archive.path != other.archive.path:
            message = (
                f"a merge reads one archive; got {self.archive.path} and {other.archive.path}; "
                "compute one of them, and merge it as an array (hg.base)"
            )
            raise InvalidQuery(message)
        return SourceLookup(self.archive or other.archive, {**self.arrays, **other.arrays}, self.known or other.known)


def pin_snapshot(question: QuerySpec, snapshot: str, as_of: str | None = None) -> QuerySpec:
    """Return a question that reads one snapshot, as of one instant, throughout.

    Those merged into it read its own unless they name another.
    """
    own, own_as_of = question.snapshot or snapshot, question.as_of or as_of
    steps = tuple(_pin_step(step, own, own_as_of) for step in question.steps)
    return replace(question, snapshot=own, as_of=own_as_of, steps=steps)


def _pin_step(step: Step, snapshot: str, as_of: str | None) -> Step:
    return replace(step, others=tuple(pin_snapshot(other, snapshot, as_of) for other in step.others)) if step.others else step

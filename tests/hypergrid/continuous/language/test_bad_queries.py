"""Texts that are no valid query: one message each, at the place of the fault, with what to write instead."""

import re

import pytest

import hypergrid as hg
from hypergrid.continuous.language import InvalidCql, parse_query
from hypergrid.continuous.records import StreamCatalogue

SCHEMA = (
    "Register Stream S (A integer, B integer, name text, speed number 'km/h', temp number 'degC', plain number, "
    "t time, ok boolean);\nRegister Stream S2 (A integer, B integer);\nRegister Relation R (A integer, kind text);\n"
)

# Query; the characters that are underlined, between guillemets; part of the message.
CASES = """
Select * From «S3»                                                | unknown stream or relation 'S3'; did you mean 'S'?
Select «spead» From S                                             | did you mean 'speed'? There are: A, B, name
Select «S.nam» From S                                             | unknown column 'nam' of S; did you mean 'name'
Select «X.A» From S                                               | unknown source 'X'
Select «S.A» From S X                                             | 'S' has the name 'X' in this query
Select «T.B» From (Select A From S) T                             | unknown column 'B' of T. There are: A
Select «A» From S, S2 Where S.B > S2.B                            | more than one source; write one of S.A, S2.A
Select A From S S2, «S2»                                          | two sources have the name 'S2'
Select * From S Where speed > «'6 parsecs'»                       | 'parsecs' does not convert to 'km/h'
Select * From S Where speed > «'6 foo'»                           | unknown unit 'foo'
Select * From S Where speed > «'6 knoots'»                        | unknown unit 'knoots'; did you mean 'knot'?
Select * From S Where temp > «'6 degreeesC'»                      | unknown unit 'degreeesC'; did you mean 'degC'?
Select * From S Where speed > «'fast'»                            | needs a number in km/h, or text such as '12 km/h'
Select * From S Where plain > «'6 m/s'»                           | without unit; write a number alone
Select * From S Where temp - temp > «'1 degC'»                    | a difference of temperatures is not a temperature
Select temp + «speed» From S                                      | they measure different things
Select * From S Where name = «7»                                  | write texts in quotes: '7'
Select * From S Where name > «A»                                  | an integer cannot be compared with a text
Select * From S Where t > «7»                                     | write an instant in quotes
Select * From S Where t > «'yesterday'»                           | needs ISO 8601 text
Select * From S Where ok = «1»                                    | an integer cannot be compared with a boolean
Select * From S Where «A»                                         | a condition is needed; got an integer
Select -«name» From S                                             | a number is needed; got a text
Select sum(«name») From S                                         | sum needs numbers; got text
Select * From S [Range «0 Minutes»]                              | got '0 Minutes'; the rows of one
Select * From S [Range «-5 Minutes»]                              | needs a length above 0; got '-5 Minutes'
Select * From S [Range 5 Minutes Slide «0 Seconds»]               | Slide needs a length above 0
Select * From S [Range 5 «Minuets»]                               | did you mean 'minute'?
Select * From S [Range 5«]»                                       | a unit of time is expected
Select * From S [Range «3000000 weeks»]                           | longer than 146 years
Select * From S [Rows «0»]                                        | whole number from 1; got 0
Select * From S [Rows «-3»]                                       | whole number from 1; got -3
Select * From S [Rows «1e400»]                                    | Rows needs a number
Select * From S Where A < «1e400»                                 | no number of 64 bits
Select * From S [Rows «2.5»]                                      | whole number from 1; got 2.5
Select * From S [«Rangs» 3]                                       | unknown window 'Rangs'; did you mean 'Range'?
Select * From S [Range 5 Minutes« »                               | ']' is expected
Select * From S [Partition By A «Range» 5 Minutes]                | Partition By needs Rows
Select * From S [Partition By «C» Rows 5]                         | unknown column 'C'
Select * From S [Now] «[Now]»                                     | at most one window
Select * From R «[Now]»                                           | R is a relation; windows are of streams
Select * From «R» Sample(10)                                      | R is a relation; samples are of streams
Select * From S Sample(«0»)                                       | percentage above 0 and up to 100; got 0
Select * From S Sample(«110»)                                     | percentage above 0 and up to 100; got 110
«Select» Rstream(*) From S                                        | needs a [Now] window in its From, or a Slide
«Select» Rstream(*) From S [Range 5 Minutes]                      | needs a [Now] window in its From, or a Slide
«Istream»(Istream(Select * From S))                               | this query is a stream already
Select Istream(«Istream»(A)) From S                               | goes around the whole select list
Select Istream(A) From S «Union» Select Istream(A) From S2        | write Union All, which is what Babu's thesis
Select A From S «Union» Select A From S2                          | write Union All, which is what Babu's thesis
Select * From (Select A From S «Union» Select A From S2) T        | write Union All, which is what Babu's thesis
Select * From S «Sample»                                          | a percentage in parentheses: Sample(10)
Select * From S «Sample» [Now]                                    | a percentage in parentheses: Sample(10)
Select * From S Where inside(A, B, «'POLYGON((0 0,1 1'»)          | POLYGON
Select * From S Where inside(A, B, «'POINT(0 0)'»)                | POLYGON
Select Case When A > 1 Then A Else «name» End From S              | need one kind; got integer, text
Select * From S Where «name Like 'a!%' Escape '!'»                | write regex
Select Istream(A) From S «Union» All Select A From S2 [Now]       | one side is a stream and the other a relation
Select A From S «Union» All Select A, B From S2                   | as many columns as each other; got 1 and 2
Select A From S «Except» All Select name From S                   | integer on the left side and text on the right
Select * From S, «S2»                                             | without a condition
Select * From S [Range 5 Minutes], «S2» [Range 5 Minutes] Where S.A > 3 And S2.A > 4 | S.key = S2.key
Select * From S [Now], S2, «R» Where S.A = S2.A                   | R is joined to S2 without a condition
Select * From S «Order By» A                                      | Order By is no part of CQL: the rows of a relation
Select * From S «Limit» 10                                        | Limit is no part of CQL
Select * From S «Left» Join R On S.A = R.A                        | Left joins are no part of CQL
Select * From S «Cross» Join R                                    | Cross joins are no part of CQL
Select * From S Join R «Using» (A)                                | write On with the equal columns
Select * From S Join R« »                                         | a Join needs On
With X As (Select * From «X») Select * From X                     | recursion is no part of CQL: 'X'
With «Recursive» X As (Select * From S) Select * From X           | recursion is no part of CQL
With «S» As (Select * From R) Select * From S                     | 'S' is the name of something else
Create View V As Select * From «V»; Select * From V               | recursion is no part of CQL: view 'V'
Create View V As Select «X» From S                                | unknown column 'X'
Create Function f(x) As «f»(x); Select f(A) From S                | unknown function 'f'
Create Function f(x) As x + «y»                                   | unknown parameter 'y' of f. There are: x
Create Function f(x) As x + 1; Select «f(A, B)» From S            | f needs 1 argument; got 2
Create Function «abs»(x) As x                                     | 'abs' is the name of a function already
Register Stream «S» (a integer)                                   | 'S' is the name of something else
Register Stream Q («a strin»)                                     | unknown type 'strin'
Register Stream Q («a number 'foo'»)                              | unknown unit 'foo'
Register Stream Q («a text 'm'»)                                  | a unit needs a number; 'a' is text
Register Stream Q (a integer, «a integer»)                        | two columns have the name 'a'
Select * From S Where regex(name, «'(a+)+b'»)                     | a repetition inside a repetition
Select * From S Where regex(name, «'(x|a*)*b'»)                   | a repetition inside a repetition
Select * From S Where regex(name, «'a++b'»)                       | no regular expression of RE2
Select * From S Where regex(name, «'(a)\\1'»)                     | may not refer back
Select * From S Where regex(name, «'(a'»)                         | this is no regular expression
Select * From S Where name Like «A»                               | a pattern needs to be a text in quotes
Select «A», count(*) From S                                       | neither in Group By nor inside an aggregate
Select «*» From S Group By A                                      | name the columns
Select «max(sum(A))» From S                                       | cannot be inside another
Select * From S Where «count(*)» > 3                              | in the select list or in Having
Select A From S Where «A» In (Select A, B From S2)                | rows of 2 columns; select as many
Select A From S Where «A In (Select A From S2)» Or B > 3          | alone or joined by And
Select A From S Where A > «(Select A From S2)»                    | exactly one row
Select A From S Where «Exists (Select A From S2)»                 | write In (Select
Select «mean»(A) From S                                           | write avg
Select «flor»(A) From S                                           | did you mean 'floor'?
Select round(A, «B») From S                                       | round needs a whole number of decimals
Select round(A, «1.5») From S                                     | round needs a whole number of decimals
Select round(A, «23») From S                                      | round needs a whole number of decimals
Select «abs(A, B)» From S                                         | abs needs 1 argument; got 2
Select quantile(A, «3») From S                                    | a number from 0 to 1
Select A From S Where A = 'x' And« »                              | the text ends where
Select A From S Where (A > 3« »                                   | the text ends where
Select A From S Where name = «'»x                                 | a quote is not closed
Select A From S Emit «Later»                                      | Emit needs Final or Now
Select «From» S                                                   | an item of the select list is expected
«Drop» Table S                                                    | Select is expected
Explain Analyze «Foo»                                             | Select is expected after 'Analyze'
Select «avg(A) Over (Partition By B)» From S                      | windows stand in brackets after a stream
Select «name || 'x'» From S                                       | texts are not joined
Select Struct<a int references «t»> From S                        | a table is not expected
"""


def cases() -> list[tuple[str, str]]:
    pairs = (line.rsplit(" | ", 1) for line in CASES.strip().splitlines())
    return [(text.rstrip() if "« »" not in text else text.split("« »")[0] + "« »", words) for text, words in pairs]


@pytest.mark.parametrize(("marked", "words"), cases())
def test_the_fault_is_underlined(marked: str, words: str) -> None:
    text = SCHEMA + re.sub("[«»]", "", marked).rstrip()
    column, length = marked.index("«") + 1, marked.index("»") - marked.index("«") - 1
    with pytest.raises(InvalidCql) as raised:
        hg.continuous({}).query(text)
    error = raised.value
    assert words in error.problem
    assert (error.line, error.column, error.length) == (4, column, length)
    first, excerpt, carets = str(error).splitlines()
    assert first == f"line 4, column {column}: {error.problem}"
    assert excerpt[6:] == text.splitlines()[3]
    assert carets[6:] == " " * (column - 1) + "^" * length


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Select A From S Where A In (" + ",".join(["1"] * 40_000) + ")", "at most 65,536 bytes; got 80,"),
        ("Select * From (" * 16 + "Select * From S" + ") t" * 16, "queries are nested deeper than 16"),
        ("Select S.A From S" + ", S2" * 32, "at most 32 sources"),
        ("Select A From S Where " + "+".join(["A"] * 300) + " > 3", "more than 200 levels"),
        ("Select A From S Where " + "not " * 10_000 + "ok", "nested too deep"),
        ("Select A From S Where " + "(" * 10_000 + "ok" + ")" * 10_000, "nested too deep"),
        ("Select " + "abs(" * 3000 + "A" + ")" * 3000 + " From S", "nested too deep"),
        ("Select A From S Where regex(name, '" + "a" * 257 + "')", "at most 256 characters; got 257"),
        ("Select A From S Where name Like '" + "%a" * 129 + "'", "at most 256 characters; got 258"),
        ("Select * From S; Select * From S", "one query is needed; got 2"),
        ("", "one query is needed; got 0"),
    ],
)
def test_texts_are_limited(text: str, words: str) -> None:
    with pytest.raises(InvalidCql, match=re.escape(words)):
        parse_query(SCHEMA + text, StreamCatalogue())


def test_what_is_at_the_limit_is_read() -> None:
    nested = "Select * From (" * 15 + "Select * From S" + ") t" * 15
    assert parse_query(SCHEMA + nested, StreamCatalogue()).tree.is_stream
    names = [f"a{number}" for number in range(31)]
    joined = ", ".join(["S", *(f"S {name}" for name in names)])
    where = " And ".join(f"S.A = {name}.A" for name in names)
    assert parse_query(f"{SCHEMA}Select S.A From {joined} Where {where}", StreamCatalogue()).tree.is_stream
    chain = " And ".join(["A > 1"] * 3000)
    assert parse_query(f"{SCHEMA}Select A From S Where {chain}", StreamCatalogue()).tree.is_stream


def test_views_and_functions_that_grow_without_end_are_refused() -> None:
    views = "".join(
        f"Create View V{n} As Select a.A From {source} a, {source} b Where a.A = b.A;"
        for n, source in enumerate(["S", *(f"V{n}" for n in range(20))])
    )
    with pytest.raises(InvalidCql, match="at most 1,024 are read"):
        parse_query(SCHEMA + views + "Select * From V20", StreamCatalogue())
    functions = "".join(
        f"Create Function f{n}(x) As {body};"
        for n, body in enumerate(["x", *(f"f{n}(x) + f{n}(x)" for n in range(25))])
    )
    with pytest.raises(InvalidCql, match="more than 1,000 calls"):
        parse_query(SCHEMA + functions + "Select f25(A) From S", StreamCatalogue())


def test_a_fault_in_a_view_of_the_catalogue_names_the_view() -> None:
    catalogue = StreamCatalogue(views={"V": "Select x From Gone"})
    with pytest.raises(InvalidCql, match="in view 'V': unknown stream or relation 'Gone'"):
        parse_query("Select * From V", catalogue)


def test_a_long_line_is_cut_around_the_fault() -> None:
    text = SCHEMA + "Select A From S Where " + "A > 1 And " * 40 + "C > 1" + " And A > 1" * 40
    with pytest.raises(InvalidCql) as raised:
        parse_query(text, StreamCatalogue())
    _, excerpt, carets = str(raised.value).splitlines()
    assert len(excerpt) <= 106
    assert excerpt[carets.index("^")] == "C"

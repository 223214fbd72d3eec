"""The dry run: what it takes each column for and why, and the deployment file that it proposes."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypergrid.archive import Archive
from hypergrid.cli.main import app
from hypergrid.core.errors import InvalidDeployment
from ingest.batch.column_names import guess_column
from ingest.batch.dry_run import dry_run
from ingest.batch.proposal import propose_deployment
from ingest.cli.report_text import show_dry_run
from ingest.deployment.deployment_file import load
from ingest.job import ingest

SEMICOLONS = "Station: Davos\nHöhe: 1560 m\n\nDatum;Zeit;Temp [°C];RH (%);WS_ms_Avg;Bemerkung\n" + "".join(
    f"{day:02d}.10.2007;12:00;{day},5;{50 + day};1,{day};gut\n" for day in range(1, 20)
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AirTC_Avg", ("air_temperature", "degC", "mean", None, 1)),
        ("Temp [°C]", ("air_temperature", "degC", None, None, 1)),
        ("temp_c", ("air_temperature", "degC", None, None, 1)),
        ("TA", ("air_temperature", None, None, None, 1)),
        ("temperature_f", ("air_temperature", "degF", None, None, 1)),
        ("ta_2m", ("air_temperature", None, None, 2.0, 1)),
        ("SHT75 / Temperature", ("air_temperature", None, None, None, 1)),
        ("Rain_mm_Tot", ("precipitation", "mm", "total", None, 1)),
        ("Wind Speed (km/h)", ("wind_speed", "km h-1", None, None, 1)),
        ("wind_gust_max", ("wind_gust", None, "max", None, 1)),
        ("VWC_20cm_2", ("soil_moisture", None, None, -0.2, 2)),
        ("p_mbar", ("air_pressure", "hPa", None, None, 1)),
        ("Global Radiation W/m2", ("solar_radiation", "W m-2", None, None, 1)),
        ("Luftfeuchtigkeit", ("relative_humidity", None, None, None, 1)),
        ("PM2.5", ("particles_2_5", None, None, None, 1)),
        # what a known name cannot be: the unit says so
        ("T (kPa)", ("t_kpa", "kPa", None, None, 1)),
        ("chlorophyll", ("chlorophyll", None, None, None, 1)),
    ],
)
def test_names_are_told_in_many_conventions(name: str, expected: tuple[object, ...]) -> None:
    guess = guess_column(name)
    assert (guess.variable.name, guess.unit, guess.statistic, guess.height_m, guess.replicate) == expected
    assert guess.why


def folder(path: Path) -> Path:
    made = path / "data"
    made.mkdir()
    (made / "davos.txt").write_text(SEMICOLONS, encoding="utf-8")
    (made / "lake.csv").write_text("station,time,T\nA,2007-10-01,1\nA,2007-10-02,x\nA,2007-10-03,3\nA,2007-10-99,4\n")
    (made / "thesis.pdf").write_bytes(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    (made / "dates.csv").write_text("date,T\n01/02/2007,1\n03/04/2007,2\n")
    return made


def test_it_says_what_each_column_is_taken_for_and_why(tmp_path: Path) -> None:
    found = dry_run([folder(tmp_path)])
    davos, lake = found.sources
    told = {seen.name: (seen.guess.variable.name, seen.guess.unit, seen.guess.statistic) for seen in davos.columns()}
    assert told == {
        "Temp [°C]": ("air_temperature", "degC", None),
        "RH (%)": ("relative_humidity", "%", None),
        "WS_ms_Avg": ("wind_speed", "m s-1", "mean"),
    }
    assert all(seen.why for seen in davos.columns())
    assert davos.layout.ignored == ("Bemerkung",)
    assert davos.layout.options.text.time_columns == ("Datum", "Zeit")
    assert davos.zone()[0] == "UTC"
    assert "nobody says" in davos.zone()[1]
    assert (davos.rows, davos.interval_s, list(davos.stations)) == (19, 86_400.0, ["davos"])
    assert [(seen.low, seen.high) for seen in davos.columns()][0] == (1.5, 19.5)
    assert any("decimal commas" in note for note in davos.layout.notes)
    assert lake.problems == {"bad number": 1, "impossible date": 1}
    assert lake.examples["bad number"] == "lake.csv, line 3: bad number: 'x' in T"
    assert found.unreadable == {
        "dates.csv": "ambiguous dates: '01/02/2007' may be '%d/%m/%Y' or '%m/%d/%Y'; set time_format"
    }
    assert found.unknown == ("thesis.pdf",)


def test_the_proposal_is_a_deployment_file_that_reads_the_files_so(tmp_path: Path, now_ns: int) -> None:
    data = folder(tmp_path)
    path = tmp_path / "proposal.toml"
    path.write_text(propose_deployment(dry_run([data])), encoding="utf-8")
    assert "UNIT NOT TOLD: taken as degC" in path.read_text(encoding="utf-8")
    described = load(path)
    davos = next(feed for feed in described.feeds if feed.files == "davos.txt")
    assert davos.column("Temp [°C]").unit == "degC"
    assert davos.column("WS_ms_Avg").statistic == "mean"
    report = ingest([data], tmp_path / "a", deployment=path, now_ns=now_ns)
    assert report.rows == 19 + 2
    archive = Archive.open(tmp_path / "a")
    series = {one.station: place for place, one in enumerate(archive.series("air_temperature"))}
    readings = archive.read("air_temperature")
    assert readings.value[readings.index == series["davos"]].tolist() == [day + 0.5 for day in range(1, 20)]
    assert archive.series("wind_speed")[0].statistic == "mean"


def test_the_command_shows_it_and_keeps_nothing(tmp_path: Path) -> None:
    data, out = folder(tmp_path), tmp_path / "start.toml"
    shown = CliRunner().invoke(app, ["ingest", "--dry-run", str(data), "--write-deployment", str(out)])
    assert shown.exit_code == 0, shown.output
    for words in ("degC", "%", "known formats: ", "thesis.pdf", "line 3: bad number", "ambiguous dates"):
        assert words in shown.output
    assert load(out).name == "data"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "start.toml"]
    printed = CliRunner().invoke(app, ["ingest", "--dry-run", "--json", str(data)])
    told = json.loads(printed.stdout)
    assert told["sources"][0]["columns"][0]["proposed"]["variable"] == "air_temperature"
    assert told["unknown"] == ["thesis.pdf"]


def test_a_file_without_columns_has_no_feed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time,T\n2020-01-01,1\n2020-01-02,2\n")
    (tmp_path / "b.csv").write_text("time,remark\n2020-01-01,fine\n2020-01-02,good\n")
    text = propose_deployment(dry_run([tmp_path]))
    assert "a.csv" in text
    assert "b.csv" not in text


def pressures(header: str) -> str:
    """Return hourly rows with pressures that may be in hPa at 2600 m or in mmHg."""
    return f"time,{header}\n" + "".join(f"2021-06-01T{hour:02d}:00,{740 + hour % 3}\n" for hour in range(24))


def test_a_feed_without_a_clear_unit_is_a_comment_with_the_question(tmp_path: Path, now_ns: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "barometer.csv").write_text(pressures("Pressure"))
    (data / "hut.csv").write_text("time,T [degC]\n2021-06-01T00:00,1\n2021-06-01T01:00,2\n")
    text = propose_deployment(dry_run([data]), data / "deployment.toml")
    assert '# LEFT OUT. barometer.csv: WHICH UNIT has "Pressure", hPa or mmHg (values 740 to 742)?' in text
    (data / "deployment.toml").write_text(text, encoding="utf-8")
    assert [feed.files for feed in load(data / "deployment.toml").feeds] == ["hut.csv"]
    assert ingest([data], tmp_path / "a", now_ns=now_ns).values == 2
    # The answer is given by leaving out the first # of each line, and the question.
    start = text.index("# [[feed]]")
    stop = text.index("\n\n", start)
    lines = [
        line.removeprefix("# ").removeprefix("# WHICH UNIT, hPa or mmHg? ") for line in text[start:stop].split("\n")
    ]
    answered = text[:start] + "\n".join(lines).replace('"air_pressure"', '"air_pressure", unit = "hPa"') + text[stop:]
    (data / "deployment.toml").write_text(answered, encoding="utf-8")
    assert ingest([data], tmp_path / "b", now_ns=now_ns).values == 24 + 2


@pytest.mark.parametrize(
    ("name", "content", "asked"),
    [
        ("a.csv", b"x,y,zinc\n1.5,2.5,7\n2.5,3.5,8\n", "WHICH COLUMN holds the times, 'x', 'y', 'zinc'[?] "),
        ("a.txt", b"1163438041250 20 1 21,21\n1163438041468 10 1 20,07\n",
         "WHAT ARE the 4 columns of its rows, such as '1163438041250 20 .*column 1 may be the time, .*epoch_ms"),
        ("a.xml", b"<?xml version='1.0'?>\n<data/>\n", "it is XML or JSON in a form that is not known: EXPORT it"),
        ("a.bin", b"\x00\x01\x02" * 50, "it is binary, in a format that is not known: EXPORT it"),
        ("a.txt", b"These files are from a pass.\n\nSee the paper.\n", "it is text without a table"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_described_is_asked_about(
    name: str, content: bytes, asked: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    run = dry_run([tmp_path])
    assert re.search(asked, run.questions[name])
    with pytest.raises(InvalidDeployment, match=f"there is nothing to describe; {name}: {asked}"):
        propose_deployment(run)
    show_dry_run(run)
    assert f"to be answered: {name}: " in capsys.readouterr().out


def test_what_files_say_goes_before_names(tmp_path: Path) -> None:
    head = "SMET 1.1 ASCII\n[HEADER]\nstation_id = {}\nlatitude = 46.5\nlongitude = 9.5\naltitude = 2000\n"
    head += "nodata = -999\ntz = 1\nfields = timestamp TSG\n[DATA]\n"
    for name in ("A1", "A2"):
        rows = "".join(f"2008-12-01T{hour:02d}:00 27{hour % 5}.15\n" for hour in range(24))
        (tmp_path / f"{name}.smet").write_text(head.format(name) + rows)
    text = propose_deployment(dry_run([tmp_path]))
    # The name alone would be that of a temperature in the soil.
    assert '"TSG" = {variable = "ground_surface_temperature", unit = "K"}   # the file tells' in text
    # Nor is a station asked for whose position is in its file.
    assert "[[station]]" not in text


def test_the_question_is_the_error_where_no_feed_is_left(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(pressures("Pressure"))
    run = dry_run([tmp_path])
    with pytest.raises(
        InvalidDeployment, match=r'p.csv: WHICH UNIT has "Pressure", hPa or mmHg .values 740 to 742.[?]'
    ):
        propose_deployment(run)
    out = tmp_path / "start.toml"
    shown = CliRunner().invoke(app, ["ingest", "--dry-run", str(tmp_path), "--write-deployment", str(out)])
    assert shown.exit_code != 0
    assert not out.exists()
    # What the message says to do helps.
    (tmp_path / "p.csv").write_text(pressures("Pressure [hPa]"))
    assert 'unit = "hPa"' in propose_deployment(dry_run([tmp_path]))

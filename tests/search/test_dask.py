"""A cluster of dask.distributed executes a search like any other executor: more machines, the same result."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from pathlib import Path

import pytest

from mat.core.errors import SpecError
from mat_search import Campaign, search

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'pytest-mat[dask]'")

PLANTED = '''
"""What every worker can import: an agent, its contract and operators, and one function from a RunSpec to a Run."""
import os
from contextlib import suppress
from pathlib import Path

import mat
from mat.boundary.catalog import Catalog
from mat.boundary.effect import Raise

OPERATORS = Catalog([
    mat.spec.operator("service.timeout", lambda call, reply, stream: Raise("timeout", delay_ms=1_000)),
    mat.spec.operator("service.lost_ack", lambda call, reply, stream: Raise("timeout", delay_ms=1_000), phase="after"),
])
SPECS = tuple(operator.spec() for operator in OPERATORS)


@mat.tool(effect="write", impact="high")
def pay(order):
    return {"paid": order}


@mat.trace_contract(start=frozenset())
def once(seen, record):
    if record.action.name != "pay" or record.effected != "yes":
        return seen
    order = record.action.arguments["order"]
    return mat.Violated("paid twice") if order in seen else seen | {order}


def evaluate(spec):
    with mat.run([once], schedule=spec.schedule, seed=spec.seed, operators=OPERATORS, states=True) as run:
        for order in ("a", "b"):
            for _ in range(2):
                with suppress(TimeoutError):
                    pay(order)
                    break
    with open(Path(__file__).with_name("log"), "a") as log:
        log.write(f"{os.getpid()}\\n")
    return run.result


def dying(spec):
    """The first worker that meets a certain schedule is gone, as a machine may be."""
    gone, searching = (Path(__file__).with_name(name) for name in ("gone", "searching"))
    if len(spec.schedule) == 1 and os.getpid() != int(searching.read_text()) and not gone.exists():
        gone.touch()
        os._exit(1)
    return evaluate(spec)
'''


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "planted_for_dask.py").write_text(PLANTED)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("planted_for_dask")
    sys.path.remove(str(folder))
    del sys.modules["planted_for_dask"]


@pytest.fixture(scope="module")
def client(planted):
    """Two processes of one thread each, as two machines would be."""
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def campaign(planted):
    return Campaign(operators=planted.SPECS, budget=8)


@pytest.mark.full
def test_a_cluster_gives_the_result_of_one_process_and_executes_what_is_explored(planted, client):
    nominal = planted.evaluate(planted.mat.spec.RunSpec())
    expected = search(nominal, planted.evaluate, campaign(planted))
    assert expected.counterexamples[0].cost == 4
    log = Path(planted.__file__).with_name("log")
    log.unlink()
    order = []
    result = search(nominal, planted.evaluate, campaign(planted), executor=client.get_executor(), note=order.append)
    assert result == expected
    assert len(order) == result.executions
    processes = log.read_text().split()
    assert str(os.getpid()) in processes, "checks and shrinking are executed here"
    assert len([each for each in processes if each != str(os.getpid())]) >= result.searched // 2


@pytest.mark.full
def test_a_worker_that_dies_costs_no_result(planted, client):
    folder = Path(planted.__file__).parent
    (folder / "searching").write_text(str(os.getpid()))
    nominal = planted.evaluate(planted.mat.spec.RunSpec())
    expected = search(nominal, planted.evaluate, campaign(planted))
    result = search(nominal, planted.dying, campaign(planted), executor=client.get_executor())
    assert (folder / "gone").exists()
    assert result == expected


@pytest.mark.full
def test_a_cluster_inside_the_searching_process_is_refused(planted):
    nominal = planted.evaluate(planted.mat.spec.RunSpec())
    options = {"processes": False, "dashboard_address": ":0", "silence_logs": logging.CRITICAL + 1}
    with distributed.LocalCluster(n_workers=1, **options) as cluster, distributed.Client(cluster) as client:
        with pytest.raises(SpecError, match="the process that searches"):
            search(nominal, planted.evaluate, campaign(planted), executor=client.get_executor())
